"""Migrations: what is deprecated goes from all modules at once, and behaviour stays; libcst computes the reference."""
