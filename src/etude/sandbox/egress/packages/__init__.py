"""Package indexes behind a door: named packages up to a date, nothing else."""
