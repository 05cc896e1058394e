"""What runners write, as cases: text in, values out, nothing run."""
