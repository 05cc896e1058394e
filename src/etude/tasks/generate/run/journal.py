"""The journal of a generation run (`making.jsonl`): one line for each candidate and each project that was decided.

A task is stored whole before its line is written. A line that a kill truncated is removed and its candidate is tried
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from etude.core.files import append_lines
from etude.tasks.errors import TaskError

FILE = "making.jsonl"


@dataclass(frozen=True)
class CandidateDecision:
    """What was decided about a candidate. An empty `reason` means that its task was taken.

    `broken`: the generator raised an unexpected error, so this says nothing about the candidate.
    """

    id: str
    category: str
    project: str
    generator: str
    reason: str = ""
    seconds: float = 0.0
    dollars: float = 0.0
    broken: bool = False

    @property
    def taken(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class InstallDecision:
    """What was decided about a project. An empty `reason` means that it is installed, otherwise it says why it is
    discarded."""

    project: str
    builder: str
    reason: str = ""
    seconds: float = 0.0
    dollars: float = 0.0


JournalRow = CandidateDecision | InstallDecision
KINDS: dict[str, type[CandidateDecision] | type[InstallDecision]] = {
    "candidate": CandidateDecision,
    "install": InstallDecision,
}


class GenerationJournal:
    """Reads and appends the journal in a folder.

    `identity` distinguishes this run from another into the same folder: the seed, because it decides which candidates
    exist. `sources`: the digests of the generators that an import path names. Raises TaskError where the folder was
    begun with another source of one of them.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], sources: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self.candidates: dict[str, CandidateDecision] = {}
        self.installs: dict[str, InstallDecision] = {}
        self.spent: dict[str, float] = {"seconds": 0.0, "core_s": 0.0}
        before = None
        bound: dict[str, str] = {}
        for kind, row in self._rows():
            if kind == "asked":
                before = row
            elif kind == "sources":
                bound |= row
            elif kind == "spent":
                self.spent = {name: self.spent.get(name, 0.0) + value for name, value in row.items()}
            else:
                self._index(KINDS[kind](**row))
        if before is not None and before != identity:
            raise TaskError(
                f"{self.path} belongs to a run with {before}, not {identity}: repeat the same settings, or give another --out"
            )
        if before is None:
            self._append("asked", identity)
        self._bind(bound, sources or {})

    def _bind(self, bound: Mapping[str, str], sources: Mapping[str, str]) -> None:
        if changed := [path for path, digest in sources.items() if bound.get(path, digest) != digest]:
            raise TaskError(
                f"{self.path}: the source of the generator {changed[0]} has changed since the run began: put it back, or "
                "give another --out"
            )
        if new := {path: digest for path, digest in sources.items() if path not in bound}:
            self._append("sources", new)

    def record(self, row: JournalRow) -> None:
        """Appends the decision and counts it."""
        self._append("candidate" if isinstance(row, CandidateDecision) else "install", asdict(row))
        self._index(row)

    def spend(self, seconds: float, core_s: float) -> None:
        """Adds the cost of one run, whatever it produced."""
        row = {"seconds": round(seconds, 3), "core_s": round(core_s, 3)}
        self._append("spent", row)
        self.spent = {name: self.spent[name] + value for name, value in row.items()}

    def _index(self, row: JournalRow) -> None:
        if isinstance(row, CandidateDecision):
            self.candidates[row.id] = row
        else:
            self.installs[row.project] = row

    def _append(self, kind: str, row: dict[str, Any]) -> None:
        line = json.dumps({"kind": kind, **row}, allow_nan=False) + "\n"
        append_lines(self.path, line.encode(), durable=True)

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if not self.path.is_file():
            return
        data = self.path.read_bytes()
        complete = data[: data.rfind(b"\n") + 1]
        if len(complete) < len(data):
            self.path.write_bytes(complete)
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                row = json.loads(line)
                yield row.pop("kind"), row
            except (ValueError, KeyError, AttributeError, RecursionError) as error:
                raise TaskError(f"{self.path}, line {number} is not a decision ({error}): remove the line") from error
