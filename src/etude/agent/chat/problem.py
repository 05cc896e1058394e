"""The kinds of malformed turns, as they stand in `Message.problem`: "bad JSON: the arguments of edit are no JSON object".

A malformed turn is evidence: it is kept, counted, answered and trained on. A call of a tool that does not exist is well
formed; the harness answers it under its id.
"""

from __future__ import annotations

from enum import StrEnum

from etude.core.trace.message import CUT_OFF


class Problem(StrEnum):
    """What was wrong with a turn."""

    CUT_OFF = "cut off"  # no end marker: the token limit came first
    STRAY = "stray token"  # a token that has no place inside a turn: another role's marker, an id beyond the vocabulary
    OPEN_THINKING = "unclosed thinking"  # the turn ended inside its thinking
    UNCLOSED = "unclosed call"
    BAD_JSON = "bad JSON"  # arguments that can't be read, or are no JSON object, or not of the declared type
    NO_NAME = "call without a name"
    MALFORMED = "malformed call"  # any other breach of the format

    def say(self, detail: str) -> str:
        """The text for `Message.problem`."""
        return CUT_OFF if self is Problem.CUT_OFF else f"{self.value}: {detail}"


def kind_of(problem: str) -> Problem | None:
    """The kind that a `Message.problem` names; None for those of the laptop format and of endpoints, which name no kind."""
    if problem == CUT_OFF:
        return Problem.CUT_OFF
    head = problem.partition(": ")[0]
    return next((kind for kind in Problem if kind.value == head), None)
