"""The error of a cleanup."""

from __future__ import annotations


class CleanupError(Exception):
    """A thing that can't be removed. It stays in the ledger with this reason, and the next reap retries it."""
