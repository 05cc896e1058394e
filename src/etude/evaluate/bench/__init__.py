"""Suites, repeated runs, average and best-of-k with intervals. Every lift the project claims is judged here."""
