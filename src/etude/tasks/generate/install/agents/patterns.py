"""Whether a pattern that a model wrote may be searched for on the host: one that could take for ever may not. Pure."""

from __future__ import annotations

import re
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from typing import Any

MOST_CHARS = 160
MOST_REPEATS = 2  # unbounded ones: time grows with the text's length to the power of their number
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
_MANY = 16


def unsafe(pattern: str) -> str:
    """Why not; empty if it may."""
    if len(pattern) > MOST_CHARS:
        return f"it has {len(pattern)} characters, at most {MOST_CHARS} are taken"
    try:
        re.compile(pattern)
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"it does not parse ({error})"
    depths = list(_repeats(tree, 0))
    if any(depth > 1 for depth in depths):
        return "a repetition stands within a repetition"
    if len(depths) > MOST_REPEATS:
        return f"it has {len(depths)} repetitions without a bound, at most {MOST_REPEATS} are taken"
    return ""


def _repeats(node: Any, depth: int) -> Iterator[int]:
    """For each repetition that is wide, how deep it is nested in others."""
    if isinstance(node, parser.SubPattern):
        for op, value in node.data:
            wide = str(op) in _REPEATS and value[1] > _MANY
            if wide:
                yield depth + 1
            yield from _repeats(value, depth + wide)
    elif isinstance(node, (tuple, list)):
        for one in node:
            yield from _repeats(one, depth)
