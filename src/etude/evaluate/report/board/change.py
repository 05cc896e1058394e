"""What a source found: a row's key and what to set in it. The same key twice changes the row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

# source, policy, task, group, member: two attempts of a run never share all five.
Key = tuple[str, str, str, int, int]


@dataclass(frozen=True)
class RowChange:
    """`only_known`: it says something of a row that another line must have made; without that row it waits for a later look."""

    key: Key
    values: dict[str, Any]
    only_known: bool = False

    @property
    def row(self) -> dict[str, Any]:
        """All fields of a new row."""
        return dict(zip(("source", "policy", "task", "group", "member"), self.key, strict=True)) | self.values


@dataclass
class Problems:
    """Files that could not be read, with the reason: a page goes on without them and says so."""

    found: dict[str, str] = field(default_factory=dict)

    def record(self, name: str, reason: object) -> None:
        self.found[name] = str(reason) or type(reason).__name__

    def clear(self, name: str) -> None:
        self.found.pop(name, None)


class RowSource(Protocol):
    """One part of a run."""

    def news(self) -> Iterator[list[RowChange]]:
        """What came since the last call, a file's worth at a time. Never raises for a file's content: it goes to `Problems`."""
        ...
