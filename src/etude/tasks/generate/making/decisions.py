"""What a making has decided, written down line by line: candidates taken or left out, projects installed or discarded.

A task lies whole in its folder before its line does; a line that a kill tore is no decision and goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from etude.tasks.errors import TaskError

FILE = "making.jsonl"


@dataclass(frozen=True)
class Decision:
    """Of a candidate. `reason` empty: taken. `broken`: the generator itself failed, which is a fault of ours and no verdict."""

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
class Install:
    """Of a project. `reason` empty: it is installed; else why it was discarded."""

    project: str
    builder: str
    reason: str = ""
    seconds: float = 0.0
    dollars: float = 0.0


Row = Decision | Install
KINDS: dict[str, type[Decision] | type[Install]] = {"candidate": Decision, "install": Install}


class Decisions:
    """`asked` tells this making from another into the same folder: the seed, for it decides which candidates there are."""

    def __init__(self, folder: Path, asked: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self.candidates: dict[str, Decision] = {}
        self.installs: dict[str, Install] = {}
        self.spent: dict[str, float] = {"seconds": 0.0, "core_s": 0.0}
        before = None
        for kind, row in self._rows():
            if kind == "asked":
                before = row
            elif kind == "spent":
                self.spent = {name: self.spent.get(name, 0.0) + value for name, value in row.items()}
            else:
                self._keep(KINDS[kind](**row))
        if before is not None and before != asked:
            raise TaskError(
                f"{self.path} tells of a making that was asked for {before}, not {asked}: ask for the same again, or give "
                "another --out"
            )
        if before is None:
            self._append("asked", asked)

    def decide(self, row: Row) -> None:
        """Write it down; it counts from here on."""
        self._append("candidate" if isinstance(row, Decision) else "install", asdict(row))
        self._keep(row)

    def spend(self, seconds: float, core_s: float) -> None:
        """What a run of the making took, whatever came of it."""
        row = {"seconds": round(seconds, 3), "core_s": round(core_s, 3)}
        self._append("spent", row)
        self.spent = {name: self.spent[name] + value for name, value in row.items()}

    def _keep(self, row: Row) -> None:
        if isinstance(row, Decision):
            self.candidates[row.id] = row
        else:
            self.installs[row.project] = row

    def _append(self, kind: str, row: dict[str, Any]) -> None:
        line = json.dumps({"kind": kind, **row}, allow_nan=False) + "\n"
        with open(self.path, "a", encoding="utf-8") as log:
            log.write(line)
            log.flush()
            os.fsync(log.fileno())

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if not self.path.is_file():
            return
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self.path.write_bytes(whole)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                yield row.pop("kind"), row
            except (ValueError, KeyError, AttributeError, RecursionError) as error:
                raise TaskError(f"{self.path}, line {number} is no decision ({error}): remove the line") from error
