"""Moves the lines of an edit from the indentation in which a model quoted a file to the file's own. Pure.

A model that quotes a file of tabs with spaces, or quotes a block too deep, shows by the lines it quoted what its indentation means:
each quoted line that matched gives a pair (as quoted, as in the file). A new line gets the indentation of the pair with its own; any
other is counted in levels from the nearest pair, in the unit of each side. Promise: every line is translated, and what can't be is
refused (`IndentationUnclear`); no line keeps the quote's indentation because it fitted nowhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from fractions import Fraction
from functools import cached_property

Pair = tuple[int, str, str]  # a quoted line's place, its indentation, and that of the file's line
# Steps of difflib's comparison at its worst, when lines repeat: some 0.3 s, in which no other session moves.
MAX_STEPS = 4_000_000
# Blanks of a level where neither the file nor the quote shows any.
DEFAULT_BLANKS = 4


class IndentationUnclear(Exception):
    """The indentation of a new line has no meaning in the file; the message names the line."""


def relocate(found: Sequence[str], quoted: Sequence[str], new: Sequence[str], file: Sequence[str]) -> list[str]:
    """`new` with the file's indentation. `found` are the file's lines that matched the `quoted` ones, one to one, and `file` all its
    lines. A line of `new` that is in `quoted` too is the file's own. Raises CantTranslate."""
    own: dict[int, str] = {}
    near: dict[int, int] = {}  # line of `new` -> the quoted line that it replaces or follows
    for tag, first, last, start, stop in _opcodes(quoted, new):
        for at in range(start, stop):
            near[at] = min(first + at - start, max(last - 1, first - 1, 0))
            if tag == "equal":
                own[at] = found[first + at - start]
    translation = IndentationMap(found, quoted, new, file)
    return [own[at] if at in own else translation.line(line, near[at]) for at, line in enumerate(new)]


def _opcodes(quoted: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """As difflib's. Where lines repeat so often that it would take long, only what both begin and end with is equal."""
    counts = Counter(quoted)
    if sum(counts[line] for line in new) * min(len(quoted), len(new)) <= MAX_STEPS:
        return SequenceMatcher(None, quoted, new, autojunk=False).get_opcodes()
    most = min(len(quoted), len(new))
    head = next((at for at in range(most) if quoted[at] != new[at]), most)
    tail = next((at for at in range(most - head) if quoted[-1 - at] != new[-1 - at]), most - head)
    last, stop = len(quoted) - tail, len(new) - tail
    return [
        ("equal", 0, head, 0, head),
        ("replace", head, last, head, stop),
        ("equal", last, len(quoted), stop, len(new)),
    ]


class IndentationMap:
    """From a quote's indentation to a file's, by the pairs that a match gives."""

    def __init__(self, found: Sequence[str], quoted: Sequence[str], new: Sequence[str], file: Sequence[str]) -> None:
        self._pairs: list[Pair] = [
            (at, indent(q), indent(f)) for at, (q, f) in enumerate(zip(quoted, found, strict=True)) if q.strip()
        ]
        self._anchors = self._pairs
        if self._pairs and not self._pairs[0][1] and self._pairs[0][2] and all(q == f for _, q, f in self._pairs[1:]):
            self._anchors = self._pairs[1:] or self._pairs  # a quote that begins within its first line
        self._by_indent: dict[str, list[Pair]] = defaultdict(list)
        for pair in self._pairs:
            self._by_indent[pair[1]].append(pair)
        self._anchors_by_size: dict[int, list[Pair]] = defaultdict(list)
        for pair in self._anchors:
            self._anchors_by_size[len(pair[1])].append(pair)
        self._quoted_unit = _step(lines := [*quoted, *new])
        self._quoted_gap = _gap(lines)
        self._file = file
        self._file_unit = _step(file) or _gap(file)

    def line(self, line: str, near: int) -> str:
        """One new line, at or below the quoted line `near`. Raises CantTranslate."""
        if not line.strip() or not self._pairs:
            return line
        given = indent(line)
        same = self._by_indent.get(given)
        have = _nearest(same, near)[2] if same else self._counted(given, near, line)
        return have + line[len(given) :]

    def _counted(self, given: str, near: int, line: str) -> str:
        """The indentation of a depth that was not quoted: levels from the nearest pair."""
        kinds = (self._quoted_kinds | {kind(given)}) - {""}
        have_kinds = self._have_kinds
        if len(kinds) > 1 or len(have_kinds) > 1 or "mixed" in kinds | have_kinds:
            raise IndentationUnclear(f"its blanks are mixed, so the indentation of {line.strip()[:60]!r} is not clear")
        target = next(iter(have_kinds), next(iter(kinds)))
        distance = min(abs(size - len(given)) for size in self._anchors_by_size)
        sizes = {len(given) - distance, len(given) + distance}
        nearest = [_nearest(self._anchors_by_size[size], near) for size in sizes if size in self._anchors_by_size]
        _, quoted, have = _nearest(sorted(nearest), near)
        size = len(have) + (len(given) - len(quoted)) * self._slope(quoted, have, next(iter(kinds)), target)
        if size < 0 or size.denominator != 1 and target != "\t":
            raise IndentationUnclear(f"the indentation of {line.strip()[:60]!r} has no place in the file")
        whole = size.numerator // size.denominator
        rest = (size - whole) * self._blanks_of_a_level(quoted, have)  # blanks that align, behind the tabs that indent
        return target * whole + " " * int(rest)

    @cached_property
    def _quoted_kinds(self) -> set[str]:
        return {kind(quoted) for _, quoted, _ in self._anchors}

    @cached_property
    def _have_kinds(self) -> set[str]:
        return {kind(have) for _, _, have in self._anchors} - {""} or {self._common_kind()} - {""}

    @cached_property
    def _slopes(self) -> set[Fraction]:
        """Between each two neighbouring sizes of quoted indentation, how much the file's grows for one character."""
        by_size = {len(q): len(h) for _, q, h in self._anchors}
        sizes = sorted(by_size)
        return {Fraction(by_size[b] - by_size[a], b - a) for a, b in zip(sizes, sizes[1:], strict=False)}

    def _slope(self, quoted: str, have: str, kind_quoted: str, target: str) -> Fraction:
        """Characters of the file's indentation for one of the quote's. Raises CantTranslate."""
        slopes = self._slopes
        if len(slopes) == 1 and (slope := next(iter(slopes))) > 0:
            return slope
        if slopes and kind_quoted != target:
            raise IndentationUnclear("the quoted lines have other levels than the file's")
        if kind_quoted == target == "\t" or slopes:
            return Fraction(1)
        if target == "\t":
            return Fraction(1, self._blanks_of_a_level(quoted, have))
        if kind_quoted == "\t":
            return Fraction(self._file_unit or DEFAULT_BLANKS)
        return (
            Fraction(self._file_unit, self._quoted_unit)
            if {self._file_unit, self._quoted_unit} == {2, 4}
            else Fraction(1)
        )

    def _blanks_of_a_level(self, quoted: str, have: str) -> int:
        """In the quote, for a file of tabs: by the steps between its lines, else by what it quoted."""
        per_tab, odd = divmod(len(quoted), len(have)) if have else (0, 1)
        shown = per_tab if per_tab > 1 and not odd else 0
        if self._quoted_unit and not (self._quoted_unit > DEFAULT_BLANKS and shown and self._quoted_unit % shown == 0):
            return self._quoted_unit
        return shown or self._quoted_gap or DEFAULT_BLANKS  # a step of two levels at once says less than the quote

    def _common_kind(self) -> str:
        """What most indented lines of the file begin with; "" if none is indented."""
        counts = Counter(line[0] for line in self._file if line[:1] in ("\t", " ") and line.strip())
        return max(sorted(counts), key=lambda one: counts[one]) if counts else ""


def _nearest(pairs: Sequence[Pair], near: int) -> Pair:
    """Of pairs in the order of their lines the one nearest to a line; the upper one of two."""
    at = bisect_left(pairs, near, key=lambda pair: pair[0])
    return min(pairs[max(0, at - 1) : at + 1], key=lambda pair: (abs(pair[0] - near), pair[0]))


def indent(line: str) -> str:
    """A line's leading blanks."""
    return line[: len(line) - len(line.lstrip())]


def kind(blanks: str) -> str:
    """The one character of an indentation, "" for none, "mixed" for more than one."""
    found = set(blanks)
    return "mixed" if len(found) > 1 or found - {"\t", " "} else "".join(found)


def _step(lines: Sequence[str]) -> int:
    """Blanks of one level: by how many a line is most often deeper than the line above it (the least such number); 0 where none is.
    One blank is an alignment, no level."""
    steps: Counter[int] = Counter()
    before: int | None = None
    for line in lines:
        if not line.strip() or kind(indent(line)) not in ("", " "):
            continue
        size = len(indent(line))
        if before is not None and size - before > 1:
            steps[size - before] += 1
        before = size
    return min(steps, key=lambda step: (-steps[step], step)) if steps else 0


def _gap(lines: Sequence[str]) -> int:
    """The least difference between the indentations of two lines; 0 where all have the same."""
    sizes = sorted({len(indent(line)) for line in lines if line.strip() and kind(indent(line)) in ("", " ")})
    return min((b - a for a, b in zip(sizes, sizes[1:], strict=False)), default=0)
