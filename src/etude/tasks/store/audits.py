"""What the last check found of each task of a folder: `audits.jsonl`, a line a task, next to the records and never in them.

A task that is read has it as `metadata["audit"]`, so that an export carries it along; its digest does not change. A finding about other content
than the row's is not shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE, KEY = "audits.jsonl", "audit"


class Audits:
    def __init__(self, root: Path) -> None:
        self._place = root / FILE
        self._known: dict[tuple[str, str], dict[str, Any]] | None = None

    def of(self, task_id: str, digest: str) -> Mapping[str, Any] | None:
        """None for a task that was never checked as it is now."""
        if self._known is None:
            self._known = self._read()
        return self._known.get((task_id, digest))

    def add(self, task_id: str, digest: str, audit: Mapping[str, Any]) -> None:
        """The last one counts."""
        if self.of(task_id, digest) == audit:
            return
        with open(self._place, "a", encoding="utf-8") as file:
            file.write(json.dumps({"id": task_id, "digest": digest, KEY: dict(audit)}, allow_nan=False) + "\n")
        assert self._known is not None
        self._known[task_id, digest] = dict(audit)

    def _read(self) -> dict[tuple[str, str], dict[str, Any]]:
        """A torn last line is no finding."""
        if not self._place.is_file():
            return {}
        lines = self._place.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return {(row["id"], row["digest"]): row[KEY] for row in rows}
