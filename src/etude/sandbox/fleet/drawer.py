"""A set from which K can be drawn at random in O(K), whatever its size."""

from __future__ import annotations

import random


class Drawer:
    def __init__(self) -> None:
        self._items: list[str] = []
        self._places: dict[str, int] = {}

    def __contains__(self, item: str) -> bool:
        return item in self._places

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self):
        return iter(self._items)

    def add(self, item: str) -> None:
        if item not in self._places:
            self._places[item] = len(self._items)
            self._items.append(item)

    def remove(self, item: str) -> None:
        """Its place is taken by the last one."""
        place = self._places.pop(item, None)
        if place is None:
            return
        last = self._items.pop()
        if last != item:
            self._items[place] = last
            self._places[last] = place

    def draw(self, k: int, dice: random.Random) -> list[str]:
        if len(self._items) <= k:
            return list(self._items)
        return [self._items[int(dice.random() * len(self._items))] for _ in range(k)]
