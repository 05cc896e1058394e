"""The one failure of undoing."""

from __future__ import annotations


class Stuck(Exception):
    """A thing that won't go: it stays in the ledger, quarantined, with this reason, and is tried again by the next reap."""
