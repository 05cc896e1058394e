"""Which prompts go through the model together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

# Prompts this short are padded to one another in attention, whatever their ratio: a further call would cost more.
NARROW = 64
# Tokens of one prefill call, padding included: bounds its memory and how long decoding rows wait for it.
PREFILL_TOKENS = 4096

T = TypeVar("T")


def group_by_width(items: Iterable[T], width: Callable[[T], int]) -> list[list[T]]:
    """Items of like width together, so that padding stays small and a call within PREFILL_TOKENS."""
    groups: list[list[T]] = []
    for item in sorted(items, key=width):
        group = groups[-1] if groups else []
        fits = group and width(item) <= max(NARROW, 2 * width(group[0]))
        if fits and width(item) * (len(group) + 1) <= PREFILL_TOKENS:
            group.append(item)
        else:
            groups.append([item])
    return groups
