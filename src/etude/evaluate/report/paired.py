"""Differences on the tasks that both sides were asked, with the bench's intervals by task (docs/bench.md).

A task's attempts share its difficulty, so a task counts once on each side, as the mean of its attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from etude.core.statistics.amounts import change
from etude.core.statistics.bounded import difference

RESAMPLES = 10_000  # the 2.5% quantile to within 0.2 percentage points of probability
SEED = 0  # of the resampling: the same files give the same intervals


@dataclass
class Means:
    """Means by task, gathered a row at a time: two numbers a task, however many attempts there are."""

    sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, task: str, value: float) -> None:
        entry = self.sums.setdefault(task, [0.0, 0.0])
        entry[0] += value
        entry[1] += 1

    def of(self, task: str) -> float:
        total, count = self.sums[task]
        return total / count


def gather(
    rows: Iterable[Mapping[str, Any]], keys: tuple[str, ...], fields: Iterable[str]
) -> dict[tuple[str, ...], dict[str, Means]]:
    """By key and field the means by task, of rows that have a number there."""
    found: dict[tuple[str, ...], dict[str, Means]] = {}
    wanted = tuple(fields)
    for row in rows:
        own = found.setdefault(tuple(str(row.get(key) or "") for key in keys), {})
        for name in wanted:
            value = row.get(name)
            if isinstance(value, int | float):
                own.setdefault(name, Means()).add(row["task_id"], float(value))
    return found


def compare_means(a: Means, b: Means, *, scores: bool) -> dict[str, Any] | None:
    """b - a over the tasks of both: means, difference, ci95, tasks. None if they share none. `scores` lie in [0, 1]."""
    shared = sorted(a.sums.keys() & b.sums.keys())
    if not shared:
        return None
    before, after = (np.array([side.of(task) for task in shared]) for side in (a, b))
    found = (difference if scores else change)({"": after - before}, {"": 1.0}, resamples=RESAMPLES, seed=SEED)
    return {
        "a": float(before.mean()),
        "b": float(after.mean()),
        "difference": found.value,
        "ci95": [found.low, found.high],
        "tasks": len(shared),
        "tasks_a": len(a.sums),
        "tasks_b": len(b.sums),
    }


def by_task(means: Means) -> dict[str, np.ndarray]:
    """As one level, for `etude.core.statistics`: each task's own mean, (N,)."""
    return {"": np.array([means.of(task) for task in sorted(means.sums)])}
