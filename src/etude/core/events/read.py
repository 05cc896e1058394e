"""Reads `events.jsonl` while others write it: whole events only, in the order they were written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Tail:
    """Follows a growing file. `poll` returns what came since the last poll; a torn line is skipped, a half one awaited."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self.path = path
        self._rest = b""
        self._offset = path.stat().st_size if from_end and path.is_file() else 0

    def poll(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [event for line in lines if (event := _event(line)) is not None]


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole event of a file, oldest first; none if the file is absent."""
    yield from Tail(path).poll()


def recent_events(path: Path, most_bytes: int) -> list[dict[str, Any]]:
    """The whole events in the last `most_bytes` of a file, oldest first: a long run's log is not read as a whole."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - most_bytes))
        lines = file.read().split(b"\n")
    if size > most_bytes:
        del lines[0]  # most likely the rest of a line
    return [event for line in lines if (event := _event(line)) is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # torn by a kill: the writer never said it was written
        return None
    return event if isinstance(event, dict) and {"kind", "stage", "time"} <= event.keys() else None
