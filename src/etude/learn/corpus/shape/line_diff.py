"""What changed between two texts, line by line, in time that grows with their length.

`difflib` compares every pair of equal lines and takes minutes for two large files. Here: equal ends are taken off; lines that stand
exactly once in both are anchors, of which the longest run in common order is kept (Bram Cohen's patience diff), and each gap is compared
in the same way. Only small gaps without an anchor go to `difflib`; a large one, where all lines repeat, becomes a replacement: right, but long.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

# Lines times lines of a gap that difflib may compare: some milliseconds.
GAP_PAIRS = 10_000


class LineChange(NamedTuple):
    """Lines `start:end` of the old text become lines `new_start:new_end` of the new one."""

    start: int
    end: int
    new_start: int
    new_end: int


def split_lines(text: str) -> list[str]:
    """Lines with their ends; only "\\n" ends one (`str.splitlines` knows nine others, which a patch program doesn't)."""
    lines = text.split("\n")
    found = [line + "\n" for line in lines[:-1]]
    return [*found, lines[-1]] if lines[-1] else found


def changes(old: Sequence[str], new: Sequence[str]) -> list[LineChange]:
    """In order, with at least one equal line between two of them."""
    return list(_gaps(old, new))


def _gaps(old: Sequence[str], new: Sequence[str]) -> Iterator[LineChange]:
    todo = [LineChange(0, len(old), 0, len(new))]  # a stack, the first gap on top
    while todo:
        gap = _trimmed(old, new, todo.pop())
        if gap.start == gap.end and gap.new_start == gap.new_end:
            continue
        if gap.start == gap.end or gap.new_start == gap.new_end:
            yield gap
            continue
        anchors = _anchors(old, new, gap)
        if anchors:
            borders = [(gap.start - 1, gap.new_start - 1), *anchors, (gap.end, gap.new_end)]
            inner = [LineChange(a + 1, c, b + 1, d) for (a, b), (c, d) in zip(borders, borders[1:], strict=False)]
            todo += reversed(inner)
        elif (gap.end - gap.start) * (gap.new_end - gap.new_start) <= GAP_PAIRS:
            yield from _by_difflib(old, new, gap)
        else:
            yield gap


def _trimmed(old: Sequence[str], new: Sequence[str], gap: LineChange) -> LineChange:
    start, end, new_start, new_end = gap
    while start < end and new_start < new_end and old[start] == new[new_start]:
        start, new_start = start + 1, new_start + 1
    while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
        end, new_end = end - 1, new_end - 1
    return LineChange(start, end, new_start, new_end)


def _anchors(old: Sequence[str], new: Sequence[str], gap: LineChange) -> list[tuple[int, int]]:
    """Places of lines that occur once in both sides of the gap, as many as keep their order."""
    once = _once(old, gap.start, gap.end)
    new_once = _once(new, gap.new_start, gap.new_end)
    pairs = [(place, new_once[line]) for line, place in once.items() if line in new_once]
    ends: list[int] = []  # by length of run: the smallest new place that one ends at
    runs: list[int] = []  # by length of run: the pair that one ends with
    before: list[int] = []  # by pair: the pair before it in its run
    for index, (_, place) in enumerate(pairs):
        length = bisect.bisect_left(ends, place)
        before.append(runs[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        runs[length : length + 1] = [index]
    found = []
    index = runs[-1] if runs else -1
    while index >= 0:
        found.append(pairs[index])
        index = before[index]
    return found[::-1]


def _once(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    """Line -> its place, in order, of those that occur there once."""
    places: dict[str, int] = {}
    for place in range(start, end):
        line = lines[place]
        places[line] = -1 if line in places else place
    return {line: place for line, place in places.items() if place >= 0}


def _by_difflib(old: Sequence[str], new: Sequence[str], gap: LineChange) -> Iterator[LineChange]:
    matcher = SequenceMatcher(None, old[gap.start : gap.end], new[gap.new_start : gap.new_end], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            yield LineChange(gap.start + a, gap.start + b, gap.new_start + c, gap.new_start + d)
