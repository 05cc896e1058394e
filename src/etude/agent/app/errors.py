"""Errors of the app: one line for the user, with the remedy and the exit status."""

from __future__ import annotations

from etude.core.redact.keys import mask_keys

# Exit statuses of `etude agent`.
ANSWERED, GAVE_UP, USAGE, INFRA, STOPPED = 0, 1, 2, 3, 130


class AppError(Exception):
    """Base: `code` is the exit status. The message holds no key."""

    code = USAGE

    def __init__(self, message: str) -> None:
        super().__init__(mask_keys(message))


class UsageError(AppError):
    """The user asked for something that can't work."""


class UnavailableError(AppError):
    """The endpoint, the sandbox or the disk does not respond. The request itself is valid."""

    code = INFRA


def exit_code(reason: str) -> int:
    """The exit status for an `EndReason` of a request."""
    return {"message": ANSWERED, "done": ANSWERED, "stopped": STOPPED}.get(reason, GAVE_UP)
