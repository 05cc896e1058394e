"""Suites, repeated runs, average and best-of-k with intervals."""
