"""Bad judgement with perfect spelling: edits that a careless programmer might make to an existing line."""

from __future__ import annotations

import random
import re

from etude.factory.exercises.mutation import ARITHMETIC, COMPARE
from etude.factory.exercises.repository import line_edit
from etude.factory.exercises.words import LETTERS, VARIABLES

PIECE = re.compile(r"[A-Za-z_]+|\d|[<>=!]=|[-+*%/]=|\s+|.")
NAMES = frozenset(word for words in VARIABLES.values() for word in words)
OPPOSITES = {
    "over": "under", "under": "over", "least": "most", "most": "least", "True": "False", "False": "True",
    "append": "extend", "first": "last", "last": "first", "count": "sum", "sum": "count", "any": "all", "all": "any",
}  # fmt: skip


def spoil(line: str, text: str, rng: random.Random) -> str | None:
    """`line` with one token changed to another of its family, names to one that occurs in `text`; None if it has none."""
    pieces = PIECE.findall(line)
    present = sorted(NAMES & set(PIECE.findall(text)))
    choices: list[tuple[int, list[str]]] = []
    for at, piece in enumerate(pieces):
        others = [other for other in _family(piece, present) if other != piece]
        if others:
            choices.append((at, others))
    if not choices:
        return None
    at, others = rng.choice(choices)
    return "".join([*pieces[:at], rng.choice(others), *pieces[at + 1 :]])


def random_edit(text: str, rng: random.Random) -> dict[str, str] | None:
    """`old` and `new` of a plausible edit somewhere in a file; None if no line offers one."""
    lines = text.splitlines()
    body = [i for i, line in enumerate(lines) if line.startswith("    ")]
    for number in rng.sample(body, len(body)):
        changed = spoil(lines[number], text, rng)
        if changed is not None:
            return line_edit(text, number, changed)
    return None


def spoiled_text(new: str, text: str, rng: random.Random) -> str | None:
    """`new`, one or several lines, with one of them spoiled."""
    lines = new.split("\n")
    for number in rng.sample(range(len(lines)), len(lines)):
        changed = spoil(lines[number], text, rng)
        if changed is not None:
            return "\n".join([*lines[:number], changed, *lines[number + 1 :]])
    return None


def _family(piece: str, present: list[str]) -> list[str]:
    if piece in COMPARE:
        return list(COMPARE)
    if piece.isdigit():
        return list("0123456789")
    if piece in ARITHMETIC:
        swaps = ARITHMETIC[piece]
        return [swaps] if len(piece) == 2 else list(swaps)
    if piece in OPPOSITES:
        return [OPPOSITES[piece]]
    if len(piece) == 1 and piece in LETTERS and piece not in present:
        return list(LETTERS)
    return present if piece in NAMES else []
