"""JSON from outside as this program can keep it and send it on: every number is finite, and nesting has a bound.

Python reads NaN, Infinity and 1e999, and hundreds of nested lists; then no other reader takes what it writes, and a function that walks the
values runs out of stack. `parse` refuses such text, `fault_of` says what is wrong with values that came parsed, and `plain` replaces it.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

# Real arguments and schemas have some ten levels; a function that walks this many stays far from the end of the stack.
MOST_DEPTH = 100


def parse(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for what is no JSON, for a number that is not finite, and for deeper nesting."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if (fault := fault_of(value)) is not None:
        raise ValueError(fault)
    return value


def fault_of(value: Any, *, finite: bool = True) -> str | None:
    """Why a JSON value is not plain; None for one that is. `finite` False: its nesting alone is judged."""
    level, depth = [value], 0
    while level:
        inner: list[Any] = []
        for one in level:
            if finite and isinstance(one, float) and not math.isfinite(one):
                return f"{one} is no JSON value"
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        level, depth = inner, depth + 1
        if level and depth > MOST_DEPTH:
            return _TOO_DEEP
    return None


def plain(value: Any, levels: int = MOST_DEPTH) -> Any:
    """The value with None for numbers that are not finite, and for what is nested deeper than `levels`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, dict | list | tuple):
        return value
    if levels <= 0 and value:
        return None
    if isinstance(value, dict):
        return {key: plain(item, levels - 1) for key, item in value.items()}
    return [plain(item, levels - 1) for item in value]


_TOO_DEEP = f"it is nested deeper than {MOST_DEPTH} levels"


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value
