"""Which projects tasks are made of, and their trees as they were released."""
