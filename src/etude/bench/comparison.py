"""Everything that is to be said of policies that were asked the same tasks, as `etude bench compare` prints it. Scores in percent."""

from __future__ import annotations

from typing import Any

import numpy as np

from etude.bench.field import Field
from etude.bench.statistics import (
    Difference,
    average,
    detectable,
    discrimination,
    matrix,
    paired,
    pass_share,
    saturated,
    split_half,
    tasks_needed,
)
from etude.bench.statistics.rank import POLICIES_MIN


def comparison(field: Field, wished: float | None = None) -> dict[str, Any]:
    """`wished`, in points: each pair also says how many tasks would find such a difference."""
    counts = {"resamples": field.shared["report"]["resamples"], "seed": field.shared["seed"]}
    means = field.means()
    pairs = matrix(means, field.weights, **counts)
    return {
        "suite": field.shared["suite"],
        "tasks": len(field.ids),
        "policies": [
            {"key": name, "passes": field.rows[name].passes, **_average(found, field.weights, counts)}
            for name, found in means.items()
        ],
        "pairs": [_pair(field, a, b, difference, wished) for (a, b), difference in pairs.items()],
        "ranking": _ranking(field, counts["seed"]),
        "items": _items(field),
    }


def _average(means: dict[str, np.ndarray], weights: dict[str, float], counts: dict[str, int]) -> dict[str, Any]:
    value, ci95 = average(means, weights, **counts).percent()
    return {"avg": value, "ci95": ci95}


def _pair(field: Field, a: str, b: str, difference: Difference, wished: float | None) -> dict[str, Any]:
    before, after = field.scores[a], field.scores[b]
    changes = paired(before.means(), after.means())
    least = detectable(changes, weights=field.weights)
    points, ci95 = difference.points.percent()
    from_passes = pass_share(before.tables, after.tables, field.weights)
    found = {
        "a": a,
        "b": b,
        "points": points,
        "ci95": ci95,
        "p": round(difference.p, 6),
        "p_holm": round(difference.p_holm, 6),
        "tasks_changed": difference.tasks_changed,
        "detectable_points": None if least is None else round(100 * least.difference, 2),
        "spread_from_passes": None if from_passes is None else round(from_passes, 4),
    }
    if wished is not None:
        found["tasks_needed"] = tasks_needed(changes, wished / 100, weights=field.weights)
    return found


def _ranking(field: Field, seed: int) -> dict[str, Any] | None:
    """Split-half correlation; None with too few policies or tasks to have one."""
    if len(field.rows) < POLICIES_MIN or len(field.ids) < 2:
        return None
    found = split_half(field.tables(), seed)
    return {"halves": round(found.halves, 4), "whole": round(found.whole, 4), "low": round(found.low, 4)}


def _items(field: Field) -> dict[str, Any]:
    ids, tables = field.ids, field.tables()
    extremes, told = saturated(tables), discrimination(tables)
    known = {task_id: round(float(r), 4) for task_id, r in zip(ids, told, strict=True) if not np.isnan(r)}
    return {
        "saturated": [ids[i] for i in extremes.saturated],
        "impossible": [ids[i] for i in extremes.impossible],
        "discrimination": dict(sorted(known.items(), key=lambda pair: pair[1])),
    }
