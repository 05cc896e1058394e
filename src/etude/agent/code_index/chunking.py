"""A file cut into chunks: a definition each where it can be, by lines where it can't.

Promise: the chunks of a file are disjoint, in order, and cover every line; none has more than LONG_LINES lines. So whatever is in a
file can be found, and a hit's lines can be read as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from etude.agent.code_index.definitions import LONG_LINES, Definition

# What belongs to the definition below it, if it is right above: comments, decorators, attributes.
LEADING = re.compile(r"\s*(?:#|//|/\*|\*|@|--)")
# Fewer lines with text than this make no chunk of their own, unless a definition starts there: closing brackets, one constant.
FEW_LINES = 3
HEADING = re.compile(r"(#{1,6})\s+(\S.*?)\s*#*$")
FENCE = re.compile(r"\s*(?:```|~~~)")


@dataclass(frozen=True)
class Chunk:
    """Lines count from 1, both ends included. `symbol` and `kind` are those of the innermost definition, "" at top level."""

    start: int
    end: int
    symbol: str
    kind: str


def chunks(lines: Sequence[str], definitions: Sequence[Definition]) -> list[Chunk]:
    """The chunks of a file of these lines; none of an empty file. `definitions` come outer ones first."""
    owners: list[Definition | None] = [None] * len(lines)
    for definition in definitions:
        first = _with_leading(lines, owners, definition.first)
        for row in range(first, min(definition.last + 1, len(lines))):
            owners[row] = definition
    made: list[Chunk] = []
    for start, end, owner in _pieces(lines, owners):
        symbol, kind = (owner.name, owner.kind) if owner else ("", "")
        made += [Chunk(a + 1, b, symbol, kind) for a, b in _cut(lines, start, end)]
    return made


def sections(lines: Sequence[str]) -> list[Definition]:
    """The headings of a Markdown text as definitions, each down to the next one."""
    found: list[tuple[int, str]] = []
    fenced = False
    for row, line in enumerate(lines):
        fenced ^= FENCE.match(line) is not None
        if not fenced and (heading := HEADING.match(line)):
            found.append((row, heading[2]))
    ends = [row - 1 for row, _ in found[1:]] + [len(lines) - 1]
    return [Definition("section", title, row, end) for (row, title), end in zip(found, ends, strict=False)]


def _with_leading(lines: Sequence[str], owners: Sequence[Definition | None], first: int) -> int:
    """The row where the comments right above a definition start, as far as they belong to the same owner."""
    while 0 < first < len(lines) and owners[first - 1] is owners[first] and LEADING.match(lines[first - 1]):
        first -= 1
    return first


def _pieces(lines: Sequence[str], owners: Sequence[Definition | None]) -> list[tuple[int, int, Definition | None]]:
    """Runs of rows with one owner, [start, end); little remainders go to the piece before them."""
    made: list[tuple[int, int, Definition | None]] = []
    seen: set[int] = set()
    for _, rows in groupby(range(len(lines)), key=lambda row: id(owners[row])):
        run = list(rows)
        start, end, owner = run[0], run[-1] + 1, owners[run[0]]
        starts = owner is not None and id(owner) not in seen
        seen.add(id(owner))
        few = sum(not lines[row].isspace() and lines[row] != "" for row in run[:LONG_LINES]) < FEW_LINES
        if made and few and not starts:
            before = made.pop()
            made.append((before[0], end, before[2]))
        else:
            made.append((start, end, owner))
    return made


def _cut(lines: Sequence[str], start: int, end: int) -> list[tuple[int, int]]:
    """[start, end) in pieces of at most LONG_LINES, cut after the last blank line of each piece's second half if there is one."""
    made: list[tuple[int, int]] = []
    while end - start > LONG_LINES:
        blank = (row for row in range(start + LONG_LINES - 1, start + LONG_LINES // 2, -1) if not lines[row].strip())
        cut = next(blank, start + LONG_LINES - 1) + 1
        made.append((start, cut))
        start = cut
    return [*made, (start, end)]
