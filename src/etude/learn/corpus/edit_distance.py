"""Levenshtein distance: the fewest characters to insert, delete or replace that make one text the other.

Myers' bit-vector algorithm (JACM 46(3), 1999, in the form of Hyyrö 2003) with Python's long integers as the vectors: one
column of the table is one number, so two texts of 4,000 characters take some 20 ms without a library.
"""

from __future__ import annotations


def edit_distance(first: str, second: str) -> int:
    """Characters are Unicode code points."""
    start = _common(first, second)
    first, second = first[start:], second[start:]
    end = _common(first[::-1], second[::-1])
    first, second = first[: len(first) - end], second[: len(second) - end]
    if not first or not second:
        return len(first) + len(second)
    places: dict[str, int] = {}  # bit i where the pattern has the character at i
    for place, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << place
    full, last = (1 << len(first)) - 1, 1 << len(first) - 1
    rises, falls, distance = full, 0, len(first)  # vertical differences of +1 and -1 in the current column
    for character in second:
        equal = places.get(character, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        up, down = falls | ~(diagonal | rises) & full, rises & diagonal  # horizontal differences
        distance += bool(up & last) - bool(down & last)
        up = up << 1 | 1  # the table's first row rises by one a column
        rises = (down << 1 | ~(diagonal | up)) & full
        falls = up & diagonal
    return distance


def _common(first: str, second: str) -> int:
    """How many characters both begin with."""
    most = min(len(first), len(second))
    if first[:most] == second[:most]:
        return most
    low, high = 0, most  # the beginnings of length `low` are equal, those of `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle)
    return low
