"""A change of one file, and which lines of the new text it wrote: what an `edit` entry records.

A line is known by a hash of its text without trailing blanks, so that it is found again after lines moved above it, and so
that a session file shows which lines it wrote without a second copy of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, Sequence

HASH_DIGITS = 12  # 48 bits: a collision within 100,000 lines of one repository is less likely than 1 in 50,000


@dataclass(frozen=True)
class LineRange:
    """Lines of a text, counted from 1, both ends included; `lines` holds each one's hash."""

    start_line: int
    end_line: int
    lines: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"start_line": self.start_line, "end_line": self.end_line, "lines": list(self.lines)}


@dataclass(frozen=True)
class Change:
    """`before` is None for a file that was created, `after` for one that was deleted. Paths are relative to the workspace."""

    path: str
    before: str | None
    after: str | None

    @cached_property
    def _spans(self) -> list[tuple[int, int, int, int]]:
        """Half-open spans (old start, old stop, new start, new stop), counted from 0, that differ."""
        return changed_spans(split(self.before), split(self.after))

    @property
    def added(self) -> int:
        """Lines that the new text has and the old had not."""
        return sum(stop - start for _, _, start, stop in self._spans)

    @property
    def removed(self) -> int:
        """Lines that the old text had and the new has not."""
        return sum(stop - start for start, stop, _, _ in self._spans)

    def added_lines(self) -> list[str]:
        """The text of the lines that this change wrote."""
        after = split(self.after)
        return [line for _, _, start, stop in self._spans for line in after[start:stop]]

    def ranges(self) -> list[LineRange]:
        """The lines of the new text that this change wrote."""
        after = split(self.after)
        return [
            LineRange(start + 1, stop, tuple(line_hash(line) for line in after[start:stop]))
            for _, _, start, stop in self._spans
            if stop > start
        ]

    def to_entry(self, call_id: str) -> dict[str, Any]:
        """The data of an `edit` entry."""
        kind = "create" if self.before is None else "delete" if self.after is None else "change"
        return {
            "call_id": call_id,
            "path": self.path,
            "kind": kind,
            "added": self.added,
            "removed": self.removed,
            "ranges": [found.to_json() for found in self.ranges()],
        }


def split(text: str | None) -> list[str]:
    """Lines without their ends; only a newline ends one, as in git."""
    if not text:
        return []
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def line_hash(line: str) -> str:
    """The first digits of SHA-256 of a line without trailing blanks."""
    return hashlib.sha256(line.rstrip().encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


def changed_spans(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Where two texts differ. What is equal at both ends is set aside first: an edit of a long file stays cheap."""
    limit = min(len(old), len(new))
    head = next((i for i in range(limit) if old[i] != new[i]), limit)
    tail = next((i for i in range(limit - head) if old[-1 - i] != new[-1 - i]), limit - head)
    matcher = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
    return [
        (a + head, b + head, c + head, d + head) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"
    ]
