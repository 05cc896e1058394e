"""A hint: the turn that is flagged, by which rule, and the hint's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["malformed_turn", "unknown_tool", "invalid_arguments", "unfinished_todos", "repeated_read"]


@dataclass(frozen=True)
class Hint:
    """`entry` is the flagged completion's number in the session."""

    entry: int
    kind: Kind
    text: str
