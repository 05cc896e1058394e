"""Differences on the tasks that both sides were asked, with intervals by task.

A task's attempts share its difficulty, so a task counts once on each side, as the mean of its attempts, and the bootstrap
resamples tasks: of N tasks N - 1 with replacement, since N draws understate the variance (Rao and Wu 1988, section 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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


def compared(a: Means, b: Means) -> dict[str, Any] | None:
    """b - a over the tasks of both: means, difference, ci95, tasks. None if they share none."""
    shared = sorted(a.sums.keys() & b.sums.keys())
    if not shared:
        return None
    before, after = (np.array([side.of(task) for task in shared]) for side in (a, b))
    low, high = interval(after - before)
    return {
        "a": float(before.mean()),
        "b": float(after.mean()),
        "difference": float((after - before).mean()),
        "ci95": [low, high],
        "tasks": len(shared),
        "tasks_a": len(a.sums),
        "tasks_b": len(b.sums),
    }


def interval(differences: np.ndarray, *, resamples: int = RESAMPLES, seed: int = SEED) -> tuple[float, float]:
    """95% of the mean of `differences` (N,), by task. One task alone has no width that could be known."""
    count = len(differences)
    draws = np.random.default_rng(seed).integers(0, count, size=(resamples, max(1, count - 1)))
    low, high = np.quantile(differences[draws].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)
