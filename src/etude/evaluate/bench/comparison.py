"""Policies side by side, out of one or more bench runs of the same suite: what `etude bench compare` and `lite` compute on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from etude.core.statistics.bounded import average
from etude.core.statistics.comparison import comparison
from etude.core.statistics.interval import shares_of
from etude.evaluate.bench.runs.axes import measures
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.runs.table import PolicyResult, read_table
from etude.evaluate.bench.scores import Scores, scores


class ComparisonError(Exception):
    """The runs can't be set side by side; says which and why."""


@dataclass(frozen=True)
class PolicyComparison:
    """All policies were asked the same tasks of one suite; `rows` in the order of the runs."""

    shared: dict[str, Any]  # conditions of the runs, of the first where they may differ
    rows: dict[str, PolicyResult]

    @cached_property
    def scores(self) -> dict[str, Scores]:
        return {name: scores(row.outcomes) for name, row in self.rows.items()}

    @property
    def ids(self) -> list[str]:
        """Tasks in the order of `tables` and `costs`."""
        return [task_id for ids in next(iter(self.scores.values())).ids.values() for task_id in ids]

    @property
    def weights(self) -> dict[str, float]:
        """How the suite weighs levels; without a word from it each task counts once."""
        return self.shared["weights"] or next(iter(self.scores.values())).counts()

    def compare(self, wished: float | None = None) -> dict[str, Any]:
        """What `etude bench compare` says, figures in percent. `wished`, in points: each pair says how many tasks would find it."""
        counts = {"resamples": self.shared["report"]["resamples"], "seed": self.shared["seed"]}
        tables, ids = {name: found.tables for name, found in self.scores.items()}, next(iter(self.scores.values())).ids
        averages = {name: average(found.means(), self.weights, **counts) for name, found in self.scores.items()}
        return {
            "suite": self.shared["suite"],
            "tasks": len(self.ids),
            "policies": [
                {
                    "key": name,
                    "passes": self.rows[name].passes,
                    **dict(zip(("avg", "ci95"), found.percent(), strict=True)),
                }
                for name, found in averages.items()
            ],
            **comparison(tables, ids, self.weights, wished=wished, **counts),
        }

    def tables(self) -> dict[str, np.ndarray]:
        """Policy -> (N, K): levels one after the other."""
        return {name: np.concatenate(list(found.tables.values())) for name, found in self.scores.items()}

    def task_weights(self) -> np.ndarray:
        """What each task weighs in the printed average, (N,): its level's share, divided alike. They add up to 1."""
        own = next(iter(self.scores.values())).means()
        return np.concatenate(
            [np.full(len(own[level]), share / len(own[level])) for level, share in shares_of(own, self.weights).items()]
        )

    def costs(self) -> tuple[str, np.ndarray]:
        """What a pass at each task costs, mean over policies, and on which axis: dollars if all have them, else tokens. (N,)."""
        known = [measures(row) for row in self.rows.values()]
        axis = "dollars" if all("dollars" in found for found in known) else "tokens"
        by_policy = [self._by_task(row, found[axis]) for row, found in zip(self.rows.values(), known, strict=True)]
        return axis, np.mean(by_policy, axis=0)

    def _by_task(self, row: PolicyResult, measure: Callable[[Any], float]) -> np.ndarray:
        values: dict[str, list[float]] = {}
        for outcome in row.outcomes:
            values.setdefault(outcome.task_id, []).append(measure(outcome))
        return np.array([np.mean(values[task_id]) for task_id in self.ids])


def read_comparison(folders: Sequence[Path], only: Sequence[str] = ()) -> PolicyComparison:
    """The policies that compete in the runs of these folders, or whose names match `only`. Policies with the same name in two runs get
    the names of the runs' folders.  Raises FieldError, and what `read_table` raises.
    """
    tables = {folder: read_table(RunFolder(folder)) for folder in folders}
    first, *others = tables.items()
    for folder, table in others:
        _same(first[0], first[1].shared, folder, table.shared)
    asked = [(folder, row) for folder, table in tables.items() for row in (table.finished if only else table.competing)]
    keys = [row.key for _, row in asked]
    rows = {(row.key if keys.count(row.key) == 1 else f"{folder.name}/{row.key}"): row for folder, row in asked}
    if len(rows) < len(asked):
        raise ComparisonError("two of the folders have the same name and the same policies: rename one")
    if only:
        rows = {name: row for name, row in rows.items() if any(fnmatchcase(name, glob) for glob in only)}
    if not rows:
        known = ", ".join(keys) or "none has made a whole pass yet"
        raise ComparisonError(
            f"no policy to compare{' that matches ' + ' or '.join(only) if only else ''}; there are: {known}"
        )
    return PolicyComparison(first[1].shared, rows)


def _same(first: Path, mine: dict[str, Any], other: Path, theirs: dict[str, Any]) -> None:
    """Only scores of one suite, one list of tasks, compare."""
    for key in ("suite", "tasks"):
        if mine[key] != theirs[key]:
            difference = (
                f"{mine['suite']['label']} and {theirs['suite']['label']}" if key == "suite" else "other tasks of it"
            )
            if key == "suite" and mine["suite"]["label"] == theirs["suite"]["label"]:
                difference += ", with another digest"
            raise ComparisonError(
                f"{first} and {other} asked {difference}: scores compare only within one suite and its tasks"
            )
