"""What a person did that can't work, and what can't be reached: one line each, with the remedy and the exit status."""

from __future__ import annotations

from etude.core.redact.keys import masked

# Exit statuses of `etude agent`.
ANSWERED, GAVE_UP, USAGE, INFRA, STOPPED = 0, 1, 2, 3, 130


class FaceError(Exception):
    """Base: `code` is the exit status. The message holds no key."""

    code = USAGE

    def __init__(self, message: str) -> None:
        super().__init__(masked(message))


class BadUse(FaceError):
    """Asked for something that makes no sense here."""


class OutOfReach(FaceError):
    """The endpoint, the sandbox or the disk does not answer: not the request's fault."""

    code = INFRA


def exit_code(reason: str) -> int:
    """The status that says how a request ended (an EndReason)."""
    return {"message": ANSWERED, "done": ANSWERED, "stopped": STOPPED}.get(reason, GAVE_UP)
