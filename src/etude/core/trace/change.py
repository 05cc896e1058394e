"""A change of one file, and which lines of the new text it wrote: what an `edit` entry records.

A line is known by a hash of its text without trailing blanks, so that it is found again after lines moved above it, and so
that a session file shows which lines it wrote without a second copy of them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, Hashable, Sequence

HASH_DIGITS = 12  # 48 bits: a collision within 100,000 lines of one repository is less likely than 1 in 50,000
# Pairs of equal lines compared at most one by one: where one line repeats throughout, this number takes about half a second.
MAX_PAIRS = 50_000
JUNK_LINES = 200  # difflib leaves out frequent lines of a text of at least this many
# A change of more lines is one of data, whose lines no reader looks for: its entry counts them and names none.
MAX_HASHED_LINES = 50_000


@dataclass(frozen=True)
class Hunk:
    """`old_lines` lines from line `old_start` on became `new_lines` lines from `new_start` on; lines are counted from 1, and
    a hunk that takes or adds nothing lies before the line it names. `lines` holds each new line's hash, `gone` each old one's."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]
    gone: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "lines": list(self.lines), "gone": list(self.gone)}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Hunk:
        return cls(**{**row, "lines": tuple(row["lines"]), "gone": tuple(row.get("gone", ()))})


@dataclass(frozen=True)
class TextChange:
    """`before` is None for a file that was created, `after` for one that was deleted. Paths are relative to the workspace."""

    path: str
    before: str | None
    after: str | None

    @classmethod
    def of_bytes(cls, path: str, before: bytes | None, after: bytes | None) -> TextChange | None:
        """What a journal of file bytes tells; None if either side is no UTF-8 text: binary files have no lines."""
        try:
            texts = [None if data is None else data.decode("utf-8") for data in (before, after)]
        except UnicodeDecodeError:
            return None
        return cls(path, *texts)

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

    def hunks(self) -> list[Hunk]:
        """Where the texts differ, in order."""
        before, after = split(self.before), split(self.after)
        return [
            Hunk(a + 1, b - a, c + 1, d - c, tuple(map(line_hash, after[c:d])), tuple(map(line_hash, before[a:b])))
            for a, b, c, d in self._spans
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
            "hunks": [hunk.to_json() for hunk in self.hunks()] if self.added + self.removed <= MAX_HASHED_LINES else [],
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


def changed_spans(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int, int, int]]:
    """Where two texts differ. What is equal at both ends is set aside first: an edit of a long file stays cheap.

    Each line is compared with its equals on the other side. Where that are too many pairs, lines that stand more often than
    once in a hundred (blank ones, braces) no longer begin a match: they are still part of one that another line began. A text that is
    too short for that is one change.
    """
    limit = min(len(old), len(new))
    head = next((i for i in range(limit) if old[i] != new[i]), limit)
    tail = next((i for i in range(limit - head) if old[-1 - i] != new[-1 - i]), limit - head)
    before, after = old[head : len(old) - tail], new[head : len(new) - tail]
    counts = Counter(after)
    many = sum(counts[line] for line in before) > MAX_PAIRS
    if many and len(after) < JUNK_LINES:
        return [(head, len(old) - tail, head, len(new) - tail)]
    matcher = SequenceMatcher(None, before, after, autojunk=many)
    return [(a + head, b + head, c + head, d + head) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
