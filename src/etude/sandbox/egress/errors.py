"""Why a request goes no further."""

from __future__ import annotations


class RequestRefused(Exception):
    """`status` is the client's HTTP status, `reason` the text for it and the log."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class BadRule(ValueError):
    """A policy that can't be one: says which part, and what to write instead."""
