"""Policies against each other: paired comparisons, Pareto fronts, and what single tasks tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from etude.bench.runs.axes import AXES, DIGITS, measures
from etude.bench.runs.table import Row, Table
from etude.bench.scores import Scores, task_means
from etude.bench.statistics import Measured, detectable, discrimination, front, matrix, paired, saturated

Weights = Mapping[str, float]


def comparisons(table: Table, found: Mapping[str, Scores], weights: Weights, *, resamples: int, seed: int) -> list[Any]:
    """Every pair of the field, on the same tasks: the difference of the second over the first, in points."""
    means = {row.key: found[row.key].means() for row in table.field}
    rows = []
    for (a, b), difference in matrix(means, weights, resamples=resamples, seed=seed).items():
        points, ci95 = difference.points.percent()
        least = detectable(paired(means[a], means[b]), weights=weights)
        rows.append(
            {
                "a": a,
                "b": b,
                "points": points,
                "ci95": ci95,
                "p": round(difference.p, 6),
                "p_holm": round(difference.p_holm, 6),
                "tasks": difference.tasks,
                "tasks_changed": difference.tasks_changed,
                "detectable_points": None if least is None else round(100 * least.difference, 2),
            }
        )
    return rows


def fronts(table: Table, found: Mapping[str, Scores], weights: Weights, *, resamples: int, seed: int) -> dict[str, Any]:
    """By axis, those of the field that have it: where each lies, whether it is on the front, and in which share of resamples."""
    result = {}
    for axis in AXES:
        points = {row.key: _measured(row, found[row.key], axis) for row in table.field if axis in measures(row)}
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


def items(table: Table, found: Mapping[str, Scores]) -> dict[str, Any]:
    """Tasks that everybody of the field solves always, nobody ever, and how each orders policies as the others do."""
    keys = [row.key for row in table.field]
    ids = [task_id for level in found[keys[0]].ids.values() for task_id in level]
    tables = {key: np.concatenate(list(found[key].tables.values())) for key in keys}
    extremes, orders = saturated(tables), discrimination(tables)
    told = {task_id: round(float(r), 4) for task_id, r in zip(ids, orders, strict=True) if not np.isnan(r)}
    return {
        "saturated": [ids[i] for i in extremes.saturated],
        "impossible": [ids[i] for i in extremes.impossible],
        "discrimination": told,
    }


def _measured(row: Row, found: Scores, axis: str) -> Measured:
    return Measured(found.means(), task_means_in(found, row, axis))


def task_means_in(found: Scores, row: Row, axis: str) -> Mapping[str, np.ndarray]:
    """An axis' means by task, in the order of the scores."""
    measure = measures(row)[axis]
    order = {task_id: place for place, task_id in enumerate(t for ids in found.ids.values() for t in ids)}
    ordered = sorted(row.outcomes, key=lambda o: (order[o.task_id], o.attempt))
    values = task_means(ordered, measure)
    return {level: values[level] for level in found.ids}
