"""JSON lines that grow while they are read: each look gives what came since; half a line waits, a broken one is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etude.evaluate.report.board.change import Problems


class GrowingJsonLines:
    """A file that may not exist yet. A file that became shorter was started again and is read from its start."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self._problems = problems
        self._at = 0
        self._number = 0

    def news(self) -> list[dict[str, Any]]:
        """The objects of the lines that became whole."""
        try:
            data = self._read()
        except OSError as error:
            self._problems.record(self.path.name, error)
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return [row for line in whole.splitlines() if (row := self._row(line)) is not None]

    def _read(self) -> bytes:
        if not self.path.is_file():
            return b""
        size = self.path.stat().st_size
        if size < self._at:
            self._at = self._number = 0
        if size == self._at:
            return b""
        with self.path.open("rb") as file:
            file.seek(self._at)
            return file.read()

    def _row(self, line: bytes) -> dict[str, Any] | None:
        self._number += 1
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            if line.strip():  # the next writer ends a line that a kill tore: expected once, but reported
                self._problems.record(f"{self.path.name}, line {self._number}", "no JSON object; the line was left out")
            return None
        return row
