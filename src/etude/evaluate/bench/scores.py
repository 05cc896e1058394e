"""Outcomes as arrays: for each level a table (N tasks, K passes), tasks sorted by id so that two policies' tables can be paired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from etude.core.statistics.best import best_of, pass_at_k, powers_of_two
from etude.evaluate.bench.outcome import Outcome


@dataclass(frozen=True)
class Scores:
    """One policy's scores. Passes are the same for all tasks of a level; levels may differ in them."""

    ids: dict[str, list[str]]  # level -> task ids
    tables: dict[str, np.ndarray]  # level -> (N, K)

    @property
    def tasks(self) -> int:
        return sum(len(ids) for ids in self.ids.values())

    @property
    def passes(self) -> int:
        """What every task has at least: the bound of an overall best-of-k."""
        return min(table.shape[1] for table in self.tables.values())

    def counts(self) -> dict[str, float]:
        """Tasks by level, as the weights of a suite that is its own mix."""
        return {level: float(len(ids)) for level, ids in self.ids.items()}

    def means(self) -> dict[str, np.ndarray]:
        """Each task's average over its passes."""
        return {level: table.mean(axis=1) for level, table in self.tables.items()}

    def best(self, k: int) -> dict[str, np.ndarray]:
        """Each task's expected best of k passes."""
        return {level: best_of(table, k) for level, table in self.tables.items()}

    def pass_at(self, k: int) -> dict[str, np.ndarray]:
        """Each task's chance that one of k passes solves it wholly."""
        return {level: pass_at_k((table >= 1).sum(axis=1), table.shape[1], k) for level, table in self.tables.items()}

    def most(self) -> int:
        """The largest k at which best-of-k is reported."""
        return powers_of_two(self.passes)[-1]


def scores(outcomes: Iterable[Outcome]) -> Scores:
    """Raises ValueError if some task of a level lacks a pass that others have: then the comparison is not fair."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.level, {}).setdefault(outcome.task_id, {})[outcome.attempt] = outcome.score
    tables: dict[str, np.ndarray] = {}
    for level, by_task in sorted(found.items()):
        passes = {tuple(sorted(attempts)) for attempts in by_task.values()}
        if len(passes) > 1:
            raise ValueError(
                "some tasks have fewer passes than others: the bench is not finished; run it again to go on"
            )
        order = passes.pop()
        tables[level] = np.array([[by_task[task_id][n] for n in order] for task_id in sorted(by_task)], dtype=float)
    return Scores({level: sorted(found[level]) for level in tables}, tables)


def task_means(outcomes: Iterable[Outcome], value: Callable[[Outcome], float]) -> Mapping[str, np.ndarray]:
    """Any figure of the attempts, averaged by task, level by level."""
    found: dict[str, dict[str, list[float]]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.level, {}).setdefault(outcome.task_id, []).append(value(outcome))
    return {level: np.array([np.mean(values) for values in tasks.values()]) for level, tasks in found.items()}
