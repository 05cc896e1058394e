"""A bench run as it lies in its folder: of every policy the whole passes, and what is missing of the others.

Only a pass that went over all tasks counts: an average over the tasks that happened to be asked first would be of another suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.runs import conditions
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.prices import Price


class NoBenchRun(Exception):
    """The folder holds none."""


@dataclass(frozen=True)
class PolicyResult:
    """One policy at one effort. `outcomes` are those of its whole passes, by task and pass."""

    key: str
    facts: dict[str, Any]  # as in conditions.json
    outcomes: list[Outcome]
    passes: int
    made: int  # attempts written down, those of broken passes too

    @property
    def competes(self) -> bool:
        return self.facts["kind"] != "control"

    @property
    def price(self) -> Price | None:
        row = self.facts["price"]
        return None if row is None else Price(**{**row, "since": date.fromisoformat(row["since"])})


@dataclass(frozen=True)
class BenchResults:
    """All rows in the order in which they were first asked."""

    shared: dict[str, Any]
    rows: list[PolicyResult]

    @property
    def finished(self) -> list[PolicyResult]:
        """Rows with a whole pass at least."""
        return [row for row in self.rows if row.passes]

    @property
    def competing(self) -> list[PolicyResult]:
        """Whom comparisons are about: those that compete; where only controls were asked, they."""
        return [row for row in self.finished if row.competes] or self.finished


def read_table(folder: RunFolder) -> BenchResults:
    """Raises NoBenchRun, ConditionsDiffer, OutcomeError."""
    known = conditions.read(folder)
    if known is None:
        raise NoBenchRun(
            f"{folder.root} has no conditions.json, so it is no bench run: give the --out of `etude bench run`"
        )
    ids = known["shared"]["tasks"]
    rows = [_row(folder, key, facts, ids) for key, facts in known["policies"].items()]
    return BenchResults(known["shared"], rows)


def price_row(price: Price | None) -> dict[str, Any] | None:
    """A price as conditions keep it."""
    return None if price is None else {**vars(price), "since": price.since.isoformat()}


def _row(folder: RunFolder, key: str, facts: dict[str, Any], ids: Sequence[str]) -> PolicyResult:
    path = folder.outcomes(key)
    found = OutcomeFile(path).outcomes if path.is_file() else {}
    passes = 0
    while ids and all((task_id, passes) in found for task_id in ids):
        passes += 1
    whole = [found[task_id, number] for task_id in ids for number in range(passes)]
    return PolicyResult(key, facts, whole, passes, len(found))
