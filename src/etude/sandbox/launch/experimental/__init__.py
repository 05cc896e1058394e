"""Backends that few machines have tested: each is taken only by its name, and with a notice."""
