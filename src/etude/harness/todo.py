"""The to-do list. Its state is the harness' own: it outlives self-summaries, and leaving items open is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Status = Literal["pending", "in_progress", "completed", "cancelled"]
STATUSES: tuple[Status, ...] = ("pending", "in_progress", "completed", "cancelled")
_OPEN = ("pending", "in_progress")


@dataclass
class Item:
    """One step to do."""

    content: str
    status: Status = "pending"


@dataclass
class TodoList:
    """Items by id, in the order they were added. `opened`: ever added; `finished`: ever completed."""

    items: dict[str, Item] = field(default_factory=dict)
    opened: int = 0
    finished: int = 0

    @property
    def open(self) -> list[str]:
        """The texts of the items that are still to do."""
        return [item.content for item in self.items.values() if item.status in _OPEN]

    def add(self, content: str) -> None:
        """An item with an id of its own."""
        number = len(self.items) + 1
        while str(number) in self.items:
            number += 1
        self.put(str(number), content, "pending")

    def finish(self, content: str) -> bool:
        """Complete the oldest open item of that text; False if there is none."""
        for key, item in self.items.items():
            if item.content == content and item.status in _OPEN:
                self.put(key, content, "completed")
                return True
        return False

    def put(self, key: str, content: str, status: Status) -> None:
        """Add an item or change it."""
        old = self.items.get(key)
        self.opened += old is None
        self.finished += status == "completed" and (old is None or old.status != "completed")
        self.items[key] = Item(content, status)

    def keep_only(self, keys: set[str]) -> None:
        """Drop the others."""
        for key in [key for key in self.items if key not in keys]:
            del self.items[key]
