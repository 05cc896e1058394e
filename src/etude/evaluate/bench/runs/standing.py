"""Where policies stand between score and cost: Pareto fronts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from etude.evaluate.bench.runs.axes import AXES, DIGITS, measures
from etude.evaluate.bench.runs.table import PolicyResult, BenchResults
from etude.evaluate.bench.scores import Scores, task_means
from etude.core.statistics.pareto import PolicySamples, front

Weights = Mapping[str, float]


def pareto_fronts(table: BenchResults, found: Mapping[str, Scores], weights: Weights, *, resamples: int, seed: int) -> dict[str, Any]:
    """By axis, those of the field that have it: where each lies, whether it is on the front, and in which share of resamples."""
    result = {}
    for axis in AXES:
        points = {row.key: _measured(row, found[row.key], axis) for row in table.competing if axis in measures(row)}
        if not points:
            continue
        digits = DIGITS[axis]
        result[axis] = [
            {
                "key": key,
                "score": round(100 * point.score.value, 2),
                "score_ci95": [round(100 * point.score.low, 2), round(100 * point.score.high, 2)],
                "cost": round(point.cost.value, digits),
                "cost_ci95": [round(point.cost.low, digits), round(point.cost.high, digits)],
                "on_front": point.on_front,
                "share": round(point.share, 4),
            }
            for key, point in front(points, weights, resamples=resamples, seed=seed).items()
        ]
    return result


def _measured(row: PolicyResult, found: Scores, axis: str) -> PolicySamples:
    return PolicySamples(found.means(), task_means_in(found, row, axis))


def task_means_in(found: Scores, row: PolicyResult, axis: str) -> Mapping[str, np.ndarray]:
    """An axis' means by task, in the order of the scores."""
    measure = measures(row)[axis]
    order = {task_id: place for place, task_id in enumerate(t for ids in found.ids.values() for t in ids)}
    ordered = sorted(row.outcomes, key=lambda o: (order[o.task_id], o.attempt))
    values = task_means(ordered, measure)
    return {level: values[level] for level in found.ids}
