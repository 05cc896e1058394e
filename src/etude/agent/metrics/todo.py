"""The to-do list. Its state is the harness' own: it outlives self-summaries, and leaving items open is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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
    """Items by id, in the order they were added. `opened`: ever added."""

    items: dict[str, Item] = field(default_factory=dict)
    opened: int = 0

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
        self.opened += key not in self.items
        self.items[key] = Item(content, status)

    def say(self, text: str) -> str:
        """`add X` or `done X`; what is wrong with it, or ""."""
        verb, _, item = text.strip().partition(" ")
        item = item.strip()
        if verb not in ("add", "done") or not item:
            return "say add X or done X"
        if verb == "add":
            self.add(item)
        elif not self.finish(item):
            return f"no todo {item}"
        return ""

    def write(self, rows: Sequence[Mapping[str, Any]], *, merge: bool) -> str:
        """All of {id, content, status} or none; what is wrong with them, or "". One without an id has its place as one."""
        items = {str(row.get("id", number)): row for number, row in enumerate(rows, 1)}
        if len(items) < len(rows):
            return "two items have the same id; nothing was changed"
        texts = {key: row.get("content", self._text(key)) for key, row in items.items()}
        missing = [key for key, text in texts.items() if not text.strip()]
        if missing:
            return f"item {missing[0]!r} is new and has no text; nothing was changed"
        if not merge:
            self.keep_only(set(items))
        for key, row in items.items():
            self.put(key, texts[key], row["status"])
        return ""

    def _text(self, key: str) -> str:
        return self.items[key].content if key in self.items else ""

    def keep_only(self, keys: set[str]) -> None:
        """Drop the others."""
        for key in [key for key in self.items if key not in keys]:
            del self.items[key]
