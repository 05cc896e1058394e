"""A bench's attempts: a line of `<policy>.jsonl` each, and the sessions that were kept of some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etude.evaluate.report.board.change import Key, Problems, RowChange
from etude.evaluate.report.board.json_lines import GrowingJsonLines

SOURCE = "bench"
# Folders of a run that hold outcomes; "" is a bench run's own.
FOLDERS = ("bench", "trials", "")
OTHERS = {"events", "ledger", "usage", "judgements", "audit", "faults"}  # JSON lines of a run that are no outcomes
NEEDED = {"task_id", "attempt", "score"}
FIELDS = {"level": "level", "score": "outcome", "turns": "turns", "tool_calls": "calls", "seconds": "seconds"}
FIELDS |= {"reason": "verdict", "tokens": "sampled"}


class BenchAttempts:
    """Every policy's outcomes, in the order they were written."""

    def __init__(self, run: Path, problems: Problems) -> None:
        self._run = run
        self._problems = problems
        self._files: dict[Path, GrowingJsonLines] = {}
        self._sessions: set[Path] = set()

    def news(self) -> Iterator[list[RowChange]]:
        for folder in FOLDERS:
            for pattern in ("*.jsonl", "policies/*.jsonl"):
                for path in sorted((self._run / folder).glob(pattern)):
                    if path.stem not in OTHERS:
                        yield from self._outcomes(path)
            yield from self._kept(self._run / folder / "sessions")

    def _outcomes(self, path: Path) -> Iterator[list[RowChange]]:
        lines = self._files.setdefault(path, GrowingJsonLines(path, self._problems))
        changes = []
        for row in lines.news():
            if NEEDED <= row.keys():
                key = (SOURCE, path.stem, str(row["task_id"]), -1, int(row["attempt"]))
                changes.append(RowChange(key, {FIELDS[name]: row[name] for name in FIELDS if name in row}))
            else:
                self._problems.record(
                    str(path.relative_to(self._run)), f"a line without {', '.join(sorted(NEEDED - row.keys()))}"
                )
        if changes:
            yield changes

    def _kept(self, folder: Path) -> Iterator[list[RowChange]]:
        """Sessions of benches: their header says whose attempt it was. A demonstration's says nothing of a bench."""
        changes = []
        for path in sorted(folder.glob("*/*.jsonl")):
            if path in self._sessions:
                continue
            header = self._header(path)
            if header is None:
                continue
            self._sessions.add(path)
            key = self._whose(path, header)
            if key is not None:
                own = {"file": str(path.relative_to(self._run)), "began": int(header.get("created_unix_s") or -1)}
                changes.append(RowChange(key, own, only_known=True))
        if changes:
            yield changes

    def _whose(self, path: Path, header: dict[str, Any]) -> Key | None:
        """A run's own bench writes it into the header; a suite's run names folder and file by it (`<key>/<task>-<pass>.jsonl`)."""
        facts, task = header.get("recipe") or {}, str(header.get("task_id", ""))
        number = str(facts.get("pass", path.stem.rpartition("-")[2]))
        suite = (self._run / "policies" / f"{path.parent.name}.jsonl").is_file()
        policy = path.parent.name if suite else facts.get("policy") if facts.get("stage") == "bench" else None
        return (SOURCE, str(policy), task, -1, int(number)) if policy and number.isdigit() else None

    def _header(self, path: Path) -> dict[str, Any] | None:
        """The first line, None while it is not whole or if it is none."""
        with path.open("rb") as file:
            line = file.readline()
        if not line.endswith(b"\n"):
            return None
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            self._problems.record(str(path.relative_to(self._run)), error)
            return {}
