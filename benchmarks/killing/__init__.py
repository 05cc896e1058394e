"""What `benchmarks/chaos.py` is made of: the run under test, who kills it, and what has to hold at the end."""
