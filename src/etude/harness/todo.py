"""The to-do list. Its state is the harness' own: it outlives self-summaries, and leaving items open is counted."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class TodoList:
    """Items in the order they were added; finishing takes the oldest open item of that text."""

    open: list[str] = field(default_factory=list)
    opened: int = 0
    finished: int = 0

    def add(self, item: str) -> None:
        self.open.append(item)
        self.opened += 1

    def finish(self, item: str) -> bool:
        """False if no open item has this text."""
        if item not in self.open:
            return False
        self.open.remove(item)
        self.finished += 1
        return True
