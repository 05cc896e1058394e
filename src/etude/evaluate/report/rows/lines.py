"""JSON lines, one at a time, however long the file; and objects within objects as fields with dotted names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line that is an object; a line torn by a kill is no row. Nothing if the file is absent."""
    yield from (row for _, row in placed_lines(path))


def placed_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same with the byte each begins at."""
    if not path.is_file():
        return
    at = 0
    with path.open("rb") as file:
        for line in file:
            row = _object(line) if line.endswith(b"\n") else None
            if row is not None:
                yield at, row
            at += len(line)


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"values": {"loss": 1}}` is `{"values.loss": 1}`; lists stay as they are, an empty object is no field."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # torn by a kill: the writer never said it was written
        return None
    return row if isinstance(row, dict) else None
