"""What the agent's edits replaced, kept beside the session so that they can be taken back: `ID.undo.jsonl` and blobs in `ID.undo/`.

A line names a file, its bytes before and after (by hash; null: no file), and how many entries the session had. An undo adds a line
that names the lines it took back. Both are written before anything depends on them, so a kill costs nothing but the line being
written. What shell commands change is not seen.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.agent.workspace.operations import OUTPUTS_FOLDER


@dataclass(frozen=True)
class Edit:
    """One change of one file. `row` counts the journal's lines from 0; `at` is the session's length in entries when it happened."""

    row: int
    at: int
    path: str
    before: str | None
    after: str | None


class UndoJournal:
    """The journal of the session at `session`; give it to `build_agent`. `entries` tells how many the session has by now."""

    def __init__(self, session: Path, entries: Callable[[], int] = lambda: 0) -> None:
        self._file = session.with_suffix(".undo.jsonl")
        self._blobs = session.with_suffix(".undo")
        self._entries = entries

    def __call__(self, path: str, before: bytes | None, after: bytes | None) -> None:
        if before == after or path.startswith(OUTPUTS_FOLDER):
            return
        row = {"at": self._entries(), "path": path, "before": self._keep(before), "after": self._keep(after)}
        self._add(row)

    def edits(self) -> list[Edit]:
        """Those that were not taken back, oldest first. A line torn by a kill is left out."""
        rows = self._rows()
        gone = {number for row in rows for number in row.get("undone", ())}
        return [Edit(i, **row) for i, row in enumerate(rows) if "path" in row and i not in gone]

    def undone(self, edits: Sequence[Edit]) -> None:
        """These were taken back."""
        self._add({"undone": [edit.row for edit in edits]})

    def blob(self, digest: str | None) -> bytes | None:
        return None if digest is None else (self._blobs / digest).read_bytes()

    def _rows(self) -> list[dict[str, Any]]:
        data = self._file.read_bytes() if self._file.exists() else b""
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def _add(self, row: dict[str, Any]) -> None:
        """A torn last line is cut away first."""
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
            side = self._blobs / f".{digest}.{os.getpid()}"
            side.write_bytes(data)
            side.rename(place)
        return digest


def digest_of(data: bytes | None) -> str | None:
    """As the journal names bytes."""
    return None if data is None else hashlib.sha256(data).hexdigest()
