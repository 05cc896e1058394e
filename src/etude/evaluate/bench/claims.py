"""What a report may claim of two policies that were asked the same tasks: lifts paired by task, in points, and discovery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from etude.core.statistics.bounded import difference
from etude.core.statistics.interval import weighted_mean
from etude.core.statistics.pairs import paired_differences
from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.scores import Scores, scores
from etude.evaluate.bench.settings import BenchSettings

Weights = Mapping[str, float]


def lift(
    before: list[Outcome], after: list[Outcome], settings: BenchSettings, weights: Weights | None = None
) -> dict[str, Any]:
    """Difference of averages under the mix and under equal levels, of best-of-k, and of each level, with intervals."""
    old, new = scores(before), scores(after)
    if old.ids != new.ids:
        raise ValueError("the two policies were asked different tasks: a paired lift needs the same ones")
    mix, equal = weights or new.counts(), dict.fromkeys(new.tables, 1.0)
    changes = paired_differences(old.means(), new.means())
    points, ci95 = difference(changes, mix, resamples=settings.resamples, seed=settings.seed).percent()
    points_equal, ci95_equal = difference(changes, equal, resamples=settings.resamples, seed=settings.seed).percent()
    return {
        "avg_points": points,
        "ci95": ci95,
        "avg_points_equal": points_equal,
        "ci95_equal": ci95_equal,
        "best_of": _best(old, new, mix, settings),
        "by_level": {level: _level(change, settings) for level, change in changes.items()},
    }


def discovery(before: list[Outcome], after: list[Outcome], level: str, settings: BenchSettings) -> dict[str, Any]:
    """Did best-of-k rise where demonstrations never show the winning move, or did training only sharpen what was there?

    `k` is the largest power of two that both have passes for. The verdict needs the paired interval of best-of-k on
    `level` to lie above zero.
    """
    old, new = (scores(o for o in outcomes if o.level == level) for outcomes in (before, after))
    found = _best(old, new, {level: 1.0}, settings)
    verdict = "discovery" if found["ci95"][0] > 0 else "sharpening, no discovery"
    return {"level": level, "tasks": new.tasks, **found, "verdict": verdict}


def _best(old: Scores, new: Scores, weights: Weights, settings: BenchSettings) -> dict[str, Any]:
    """Best-of-k of both and its paired difference, at the largest k that both have passes for."""
    k = min(old.most(), new.most())
    best_old, best_new = old.best(k), new.best(k)
    change = paired_differences(best_old, best_new)
    points, ci95 = difference(change, weights, resamples=settings.resamples, seed=settings.seed).percent()
    return {
        "k": k,
        "before": round(100 * weighted_mean(best_old, weights), 2),
        "after": round(100 * weighted_mean(best_new, weights), 2),
        "points": points,
        "ci95": ci95,
    }


def _level(change: np.ndarray, settings: BenchSettings) -> dict[str, Any]:
    points, ci95 = difference({"": change}, {"": 1.0}, resamples=settings.resamples, seed=settings.seed).percent()
    return {"avg_points": points, "ci95": ci95, "tasks": len(change)}
