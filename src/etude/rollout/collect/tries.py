"""What was tried of a collection: one line a try, appended when it ended, so that a kill costs what was in flight and counts none twice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "tries.jsonl"


@dataclass(frozen=True)
class CollectedAttempt:
    """One attempt at a task. `kept`: its session lies in `session`; else `why` says why not. `files` is the digest of what it changed."""

    task: str
    number: int
    score: float
    kept: bool
    session: str = ""
    why: str = ""
    files: str = ""
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = None
    seconds: float = 0.0


class CollectionConflict(Exception):
    """The folder holds a collection of somebody else's sessions, or of other tasks."""


class CollectionLog:
    """The tries of one folder. `asked` (teacher, tasks, harness, what is kept) tells this collection from another."""

    def __init__(self, folder: Path, asked: dict[str, Any]) -> None:
        self.path = folder / FILE
        folder.mkdir(parents=True, exist_ok=True)
        self.rows: dict[tuple[str, int], CollectedAttempt] = {}
        settings_file = folder / "asked.json"
        text = json.dumps(asked, sort_keys=True, indent=1) + "\n"
        if settings_file.is_file() and settings_file.read_text() != text:
            before = json.loads(settings_file.read_text())
            other = sorted(key for key in {*before, *asked} if before.get(key) != asked.get(key))
            raise CollectionConflict(
                f"{folder} holds sessions collected under another {', '.join(other)}: ask for the same again, or give another --out"
            )
        settings_file.write_text(text)
        for row in self._read():
            self.rows[row.task, row.number] = row

    def add(self, row: CollectedAttempt) -> None:
        with open(self.path, "a", encoding="utf-8") as log:
            log.write(json.dumps(asdict(row), allow_nan=False) + "\n")
        self.rows[row.task, row.number] = row

    def kept_attempts(self, task_id: str | None = None) -> list[CollectedAttempt]:
        return [row for row in self.rows.values() if row.kept and (task_id is None or row.task == task_id)]

    @property
    def dollars(self) -> float:
        return sum(row.dollars or 0.0 for row in self.rows.values())

    def _read(self) -> list[CollectedAttempt]:
        """A torn last line is no try, and goes."""
        if not self.path.is_file():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self.path.write_bytes(whole)
        return read_tries(self.path)


def read_tries(file: Path) -> list[CollectedAttempt]:
    """Its whole lines; the file stays as it is."""
    data = file.read_bytes()
    return [CollectedAttempt(**json.loads(line)) for line in data[: data.rfind(b"\n") + 1].splitlines()]
