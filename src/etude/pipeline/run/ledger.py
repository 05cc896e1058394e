"""The resume ledger: what was started and what finished, appended to `ledger.jsonl` and never rewritten.

    {"event": "started", "stage": "sft", "attempt": "sft-1", "settings": {"sft.seed": 0, ...}, "upstream": {"base": "base-1"}}
    {"event": "chosen", "stage": "rl", "attempt": "rl-1", "settings": {"rl.update.batch_tokens": 4096, ...}}
    {"event": "finished", "stage": "sft", "attempt": "sft-1"}

An attempt is one life of a stage's output: a resumed stage keeps its attempt, a rerun gets a new one. A stage is finished
for good once its line is on disk; a kill before that line means that the body is called again with its folder. The numbers
that a stage chooses for settings that are "auto" belong to its attempt.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.core.events.finite import dumps
from etude.core.files import append_lines


@dataclass
class StageAttempt:
    """What the ledger says of the newest attempt at a stage. `started_s` and `ended_s` are seconds since 1970, None where the ledger has none."""

    id: str
    settings: dict[str, Any] = field(default_factory=dict)
    upstream: dict[str, str] = field(default_factory=dict)
    finished: bool = False
    sources: dict[str, str] = field(default_factory=dict)  # by import path, the digest of the source
    started_s: float | None = None
    ended_s: float | None = None


class StageLedger:
    """Reads the whole file at construction; each record is on disk (fsync) before the call returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.attempts: dict[str, StageAttempt] = {}
        self._counts: dict[str, int] = {}
        for entry in _entries(path):
            self._apply(entry)

    def latest(self, stage: str) -> StageAttempt | None:
        """The newest attempt at a stage, None if it was never started."""
        return self.attempts.get(stage)

    def finished_attempt(self, stage: str) -> str | None:
        """The id of a finished attempt at a stage, None if its newest attempt is not finished."""
        attempt = self.attempts.get(stage)
        return attempt.id if attempt is not None and attempt.finished else None

    def start(
        self,
        stage: str,
        settings: dict[str, Any],
        upstream: dict[str, str],
        sources: dict[str, str] | None = None,
    ) -> StageAttempt:
        """A new attempt at a stage; `sources` are the digests of what its settings name by import path."""
        number = self._counts.get(stage, 0) + 1
        bound = {"sources": sources} if sources else {}
        self._record(
            event="started",
            stage=stage,
            attempt=f"{stage}-{number}",
            settings=settings,
            upstream=dict(upstream),
            **bound,
        )
        return self.attempts[stage]

    def choose(self, stage: str, settings: dict[str, Any]) -> None:
        """The numbers that the newest attempt at a stage took for settings that are "auto"."""
        self._record(event="chosen", stage=stage, attempt=self.attempts[stage].id, settings=settings)

    def finish(self, stage: str) -> None:
        """The newest attempt's output is complete."""
        self._record(event="finished", stage=stage, attempt=self.attempts[stage].id)

    def _record(self, **entry: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        entry = {"time": round(time.time(), 3), **entry}
        line = dumps(entry).encode() + b"\n"
        append_lines(self.path, line, durable=True)
        self._apply(entry)

    def _apply(self, entry: dict[str, Any]) -> None:
        stage = entry["stage"]
        if entry["event"] == "started":
            self._counts[stage] = self._counts.get(stage, 0) + 1
            self.attempts[stage] = StageAttempt(
                entry["attempt"],
                entry["settings"],
                entry["upstream"],
                sources=entry.get("sources", {}),
                started_s=entry.get("time"),
            )
        elif entry["event"] == "chosen" and stage in self.attempts:
            self.attempts[stage].settings |= entry["settings"]
        elif entry["event"] == "finished" and stage in self.attempts:
            attempt = self.attempts[stage]
            attempt.finished = attempt.id == entry["attempt"]
            attempt.ended_s = entry.get("time") if attempt.finished else None


def _entries(path: Path) -> list[dict[str, Any]]:
    """Whole entries, oldest first; a line torn by a kill was never promised to anybody."""
    if not path.is_file():
        return []
    entries = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("event") in ("started", "chosen", "finished"):
            entries.append(entry)
    return entries
