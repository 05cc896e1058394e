"""Follows a session that is being written: each call gives the entries whose lines are whole by now. Tokens are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

from etude.core.trace.entry import FORMAT_VERSION, Entry, SessionHeader
from etude.core.trace.migrations import Row, SessionError, steps_from
from etude.core.trace.reader import entry_of, header_of, parse_line


class SessionTail:
    """`header` is None until the first line is whole. The file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: SessionHeader | None = None
        self._read_bytes = 0
        self._lines = 0
        self._steps: list[Callable[[Row], Row]] = []

    def read(self) -> list[Entry]:
        """The entries that became whole since the last call. Raises SessionError if the file is no session."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [entry for line in whole.split(b"\n")[:-1] if (entry := self._take(line)) is not None]

    def _take(self, line: bytes) -> Entry | None:
        self._lines += 1
        row = parse_line(line, f"{self.path}:{self._lines}")
        if self.header is None:
            if row.get("type") != "session":
                raise SessionError(f"{self.path} is not a session: its first line is no session header")
            self._steps = steps_from(row.get("version"))
        for step in self._steps:
            row = step(row)
        if self.header is None:
            self.header = header_of({**row, "version": FORMAT_VERSION})
            return None
        return entry_of(row, f"{self.path}:{self._lines}")
