"""Search-and-replace edits of a text file. Pure. An edit names its place by the text that is there: an exact match, else one
unique match of whole lines under the one normal form below; what was used is reported, since a fuzzy success is a habit to count.

The normal form of a line: runs of blanks are one, none at its ends; typographic quotes, dashes and spaces are the plain ones. Lines
matched so are replaced whole, the new text moved to the file's indentation (`indentation`), or refused. Promise: no byte outside of the
replaced lines changes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from etude.agent.harness.edits.indentation import IndentationUnclear, relocate
from etude.agent.harness.edits.matching import closest, count_occurrences, squeeze
from etude.agent.workspace.text_file import TextFile

# A hint in a file of more lines would cost too much time for what it says; `matching` bounds the comparisons below it.
MAX_HINT_LINES = 50_000

# Regions that are replaced one by one.
MAX_REGIONS = 100

MatchKind = Literal["exact", "blanks", "typography"]

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u200a\u202f\u205f\u3000", " "),
        **dict.fromkeys("\u200b\ufeff", None),
    }
)


@dataclass(frozen=True)
class Replace:
    """Replace `old` by `new`; everywhere if `all`."""

    old: str
    new: str
    all: bool = False


@dataclass(frozen=True)
class EditedFile:
    """The file after edits: what each matched by, and the lines (first, last; from 1) that each wrote, as they stood then."""

    file: TextFile
    hows: tuple[MatchKind, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


class EditError(Exception):
    """An edit that can't be made: `number` from 1; `lines` where `old` is if in several places; `hint` the closest region, or why
    the blanks of the new text can't be those of the file."""

    def __init__(
        self, number: int, problem: Literal["none", "several", "empty", "equal", "blanks"], lines: list[int], hint: str
    ) -> None:
        super().__init__(problem)
        self.number, self.problem, self.lines, self.hint = number, problem, lines, hint


def edit(file: TextFile, edits: list[Replace]) -> EditedFile:
    """All edits, each on the result of those before it, or none. Raises NoPlace."""
    done = EditedFile(file)
    for number, one in enumerate(edits, 1):
        new, how, span = _edit(done.file, number, one)
        done = EditedFile(new, (*done.hows, how), (*done.spans, span))
    return done


def normal(line: str) -> str:
    """The normal form in which a line may match."""
    return squeeze(line.translate(_PLAIN))


def _edit(file: TextFile, number: int, one: Replace) -> tuple[TextFile, MatchKind, tuple[int, int]]:
    old, new = one.old.replace("\r\n", "\n"), one.new.replace("\r\n", "\n")
    if not old:
        raise EditError(number, "empty", [], "")
    if old == new:
        raise EditError(number, "equal", [], "")
    text = file.text
    count = count_occurrences(text, old)
    if count == 0:
        return _edit_loosely(file, number, old, new)
    starts = _occurrences(text, old) if one.all else [text.find(old)]
    offsets = [0, *accumulate(len(line) + 1 for line in file.lines)]
    if count > 1 and not one.all:
        raise EditError(number, "several", [bisect_right(offsets, at) for at in _occurrences(text, old)], "")
    first, last = 0, 0
    regions = _regions(offsets, starts, len(old))
    if len(regions) > MAX_REGIONS and (old.count("\n") == new.count("\n") or len(set(file.returns[:-1])) < 2):
        regions = [
            (regions[0][0], regions[-1][1])
        ]  # each splice copies the file; here one of all lines gives the same bytes
    for start, stop in reversed(regions):
        region = "\n".join(file.lines[start:stop])
        fresh = region.replace(old, new).split("\n")
        file = file.splice(start, stop, fresh)
        first, last = start + 1, (last + len(fresh) - (stop - start)) if last else start + len(fresh)
    return file, "exact", (first, last)


def _occurrences(text: str, old: str) -> list[int]:
    """Where `old` begins, places that overlap an earlier one left out."""
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _regions(offsets: list[int], starts: list[int], length: int) -> list[tuple[int, int]]:
    """The runs of whole lines [start, stop) that hold the occurrences; those that share a line are one."""
    regions: list[tuple[int, int]] = []
    for at in starts:
        start, stop = bisect_right(offsets, at) - 1, bisect_right(offsets, at + length)
        stop = min(stop, len(offsets) - 1)
        if regions and start < regions[-1][1]:
            start, stop = regions[-1][0], max(stop, regions.pop()[1])
        regions.append((start, stop))
    return regions


def _edit_loosely(file: TextFile, number: int, old: str, new: str) -> tuple[TextFile, MatchKind, tuple[int, int]]:
    given = old.strip("\n").split("\n")
    wanted = [normal(line) for line in given]
    lines = list(file.lines)
    starts = windows([normal(line) for line in lines], wanted) if any(wanted) else []
    if len(starts) > 1:
        raise EditError(number, "several", [start + 1 for start in starts], "")
    if not starts:
        raise EditError(number, "none", [], closest(lines, wanted, MAX_HINT_LINES))
    start, stop = starts[0], starts[0] + len(wanted)
    found = lines[start:stop]
    blanks = [squeeze(line) for line in found] == [squeeze(line) for line in given]
    try:
        moved = relocate(found, given, new.strip("\n").split("\n") if new else [], lines)
    except IndentationUnclear as unclear:
        raise EditError(number, "blanks", [start + 1], str(unclear)) from unclear
    return file.splice(start, stop, moved), "blanks" if blanks else "typography", (start + 1, start + len(moved))


def windows(lines: list[str], wanted: list[str], first: int = 0) -> list[int]:
    """Where, at or after `first`, the lines `wanted` are in `lines`, overlapping places too.

    Knuth, Morris and Pratt's search: each line is looked at a bounded number of times, however often lines repeat."""
    shorter = [0] * len(wanted)  # of each beginning of `wanted`, the longest other beginning with which it ends
    for end in range(1, len(wanted)):
        held = shorter[end - 1]
        while held and wanted[end] != wanted[held]:
            held = shorter[held - 1]
        shorter[end] = held + (wanted[end] == wanted[held])
    found: list[int] = []
    held = 0
    for at in range(first, len(lines)):
        while held and (held == len(wanted) or lines[at] != wanted[held]):
            held = shorter[held - 1]
        held += lines[at] == wanted[held]
        if held == len(wanted):
            found.append(at - held + 1)
    return found
