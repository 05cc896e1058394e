"""Etude trains a coding agent the way Composer 2 was trained, whole and in the open. `docs/architecture.md` is the map of the code."""

__version__ = "0.1.0"
