"""Etude trains a coding agent the way Composer 2 was trained, whole and in the open. `docs/design.md` is the map of the rooms."""

__version__ = "0.1.0"
