"""A bench's outcomes: which files hold them, in a run of a recipe and in a bench run of its own, and their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.evaluate.report.rows.lines import flat, json_lines

# Folders of a run that hold outcomes; "" is a bench run's own.
FOLDERS = ("trials", "bench", "")
NEEDED = {"task_id", "attempt", "score"}


@dataclass(frozen=True)
class OutcomeSource:
    """One policy's file. `where`: the run's folder it lies in, empty in a bench run."""

    path: Path
    where: str
    policy: str
    effort: str


def outcome_sources(run: Path) -> Iterator[OutcomeSource]:
    """Every file of outcomes, trials before the bench; other files of JSON lines are left aside by their first line."""
    for folder in FOLDERS:
        for pattern in ("*.jsonl", "policies/*.jsonl"):
            for path in sorted((run / folder).glob(pattern)):
                if NEEDED <= next(json_lines(path), {}).keys():
                    policy, _, effort = path.stem.partition("@")
                    yield OutcomeSource(path, folder, policy, effort)


def outcomes(run: Path) -> Iterator[dict[str, Any]]:
    """policy, effort, where, and the outcome's own fields."""
    for source in outcome_sources(run):
        for row in json_lines(source.path):
            own = flat(row)
            effort = own.pop("effort", "") or source.effort
            yield {"policy": source.policy, "effort": effort, "where": source.where, **own}
