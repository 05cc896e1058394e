"""Names that a person or a model may have meant: those a few keystrokes away, and no others.

A suggestion far from what was written is worse than none: `rl.slots` is no help for `rl.lora`.
"""

from __future__ import annotations

from collections.abc import Iterable

# (characters, keystrokes): a word of at least that length may have this many keystrokes wrong. A word of one or two characters is like every other.
_ALLOWED = ((10, 3), (6, 2), (3, 1))


def similar(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Of the known names those that `word` is a slip of, the nearest first, at most `most`. Case does not count."""
    ranked = [(distance(word.lower(), name.lower()), name) for name in dict.fromkeys(known) if _may_be_slip(word, name)]
    near = [(keystrokes, name) for keystrokes, name in ranked if keystrokes <= _allowed(word, name)]
    return [name for _, name in sorted(near)[:most]]


def similar_key(key: str, known: Iterable[str]) -> str | None:
    """As `similar` for dotted keys: each part must be near its counterpart, so that a common section does not make keys alike."""
    parts = key.split(".")
    near: list[tuple[int, str]] = []
    for name in known:
        others = name.split(".")
        if len(others) == len(parts) and all(
            one == other or similar(one, [other]) for one, other in zip(parts, others, strict=True)
        ):
            near.append((distance(key, name), name))
    return min(near)[1] if near else None


def _allowed(word: str, name: str) -> int:
    shorter = min(len(word), len(name))
    return next((keystrokes for length, keystrokes in _ALLOWED if shorter >= length), 0)


def _may_be_slip(word: str, name: str) -> bool:
    """A distance is at least the difference of the lengths: most names need no more than this."""
    return abs(len(word) - len(name)) <= _allowed(word, name)


def distance(one: str, other: str) -> int:
    """Keystrokes from one to the other: characters added, left out, exchanged or swapped with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, character in enumerate(one, 1):
        last, row = row, [i]
        for j, counterpart in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (character != counterpart))
            if before and j > 1 and character == other[j - 2] and one[i - 2] == counterpart:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before = last
    return row[-1]
