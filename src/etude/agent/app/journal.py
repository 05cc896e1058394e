"""The journal of the agent's edits, kept next to the session so that they can be undone: `ID.undo.jsonl` and blobs in `ID.undo/`.

A line names a file, its bytes before and after (by hash; null: no file), and how many entries the session had. An undo adds a line
that names the lines it undid. Both are written before anything depends on them, so a kill loses only the line being written. The
journal does not see what shell commands change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.agent.workspace.operations import OUTPUTS_FOLDER
from etude.core.files import replace_file


@dataclass(frozen=True)
class JournalEdit:
    """One change of one file. `row` counts the journal's lines from 0; `at` is the session's length in entries when it happened."""

    row: int
    at: int
    path: str
    before: str | None
    after: str | None


class UndoJournal:
    """The journal of the session at `session`, to be passed to `build_agent`. `entries` returns how many entries the session has."""

    def __init__(self, session: Path, entries: Callable[[], int] = lambda: 0) -> None:
        self._file = session.with_suffix(".undo.jsonl")
        self._blobs = session.with_suffix(".undo")
        self._entries = entries

    def __call__(self, path: str, before: bytes | None, after: bytes | None) -> None:
        if before == after or path.startswith(OUTPUTS_FOLDER):
            return
        row = {"at": self._entries(), "path": path, "before": self._keep(before), "after": self._keep(after)}
        self._add(row)

    def edits(self) -> list[JournalEdit]:
        """Edits that were not undone, oldest first. A line torn by a kill is left out."""
        rows = self._rows()
        gone = {number for row in rows for number in row.get("undone", ())}
        return [JournalEdit(i, **row) for i, row in enumerate(rows) if "path" in row and i not in gone]

    def mark_undone(self, edits: Sequence[JournalEdit]) -> None:
        """Record that these edits were undone."""
        self._add({"undone": [edit.row for edit in edits]})

    def blob(self, digest: str | None) -> bytes | None:
        return None if digest is None else (self._blobs / digest).read_bytes()

    def _rows(self) -> list[dict[str, Any]]:
        data = self._file.read_bytes() if self._file.exists() else b""
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def _add(self, row: dict[str, Any]) -> None:
        """Append a row. A torn last line is cut off first."""
        with open(self._file, "ab+") as file:
            file.seek(0)
            data = file.read()
            file.truncate(data.rfind(b"\n") + 1)
            file.write(json.dumps(row).encode() + b"\n")

    def _keep(self, data: bytes | None) -> str | None:
        if data is None:
            return None
        digest = hashlib.sha256(data).hexdigest()
        place = self._blobs / digest
        if not place.exists():
            self._blobs.mkdir(parents=True, exist_ok=True)
            replace_file(place, data)
        return digest


def digest_of(data: bytes | None) -> str | None:
    """The journal's name for these bytes, or None for no file."""
    return None if data is None else hashlib.sha256(data).hexdigest()
