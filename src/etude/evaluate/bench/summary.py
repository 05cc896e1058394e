"""From outcomes to the numbers of `report.json`: percentages in percent, intervals by task.

Two averages, always both: `avg` weighs the levels as the exercises mix them and is the headline; `avg_equal` gives every level the
same weight, so that no choice of the mix can carry a claim alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etude.core.statistics.best import powers_of_two
from etude.core.statistics.bounded import average
from etude.core.statistics.interval import weighted_mean
from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.scores import Scores, scores, task_means
from etude.evaluate.bench.settings import BenchSettings

Weights = Mapping[str, float]


def summarise(outcomes: list[Outcome], settings: BenchSettings, weights: Weights | None = None) -> dict[str, Any]:
    """One policy's entry under `bench` in report.json. Without `weights` the suite is its own mix: each task counts once."""
    found = scores(outcomes)
    mix, equal = weights or found.counts(), dict.fromkeys(found.tables, 1.0)
    mean, ci95 = average(found.means(), mix, resamples=settings.resamples, seed=settings.seed).percent()
    mean_equal, ci95_equal = average(found.means(), equal, resamples=settings.resamples, seed=settings.seed).percent()
    return {
        "avg": mean,
        "ci95": ci95,
        "avg_equal": mean_equal,
        "ci95_equal": ci95_equal,
        "best_of": _best(found, mix),
        "best_of_equal": _best(found, equal),
        **{name: _figure(outcomes, name, mix) for name in ("tokens", "tool_calls", "turns", "seconds")},
        "tasks": found.tasks,
        "passes": found.passes,
        "by_category": _split(outcomes, settings, mix, lambda o: o.category),
        "by_level": _split(outcomes, settings, mix, lambda o: o.level),
        "by_holdout": _split([o for o in outcomes if o.holdout], settings, None, lambda o: o.holdout),
    }


def _best(found: Scores, weights: Weights) -> dict[str, float]:
    return {str(k): round(100 * weighted_mean(found.best(k), weights), 2) for k in powers_of_two(found.passes)}


def _figure(outcomes: list[Outcome], name: str, weights: Weights) -> float:
    return round(weighted_mean(task_means(outcomes, lambda o: getattr(o, name)), weights), 3)


def _split(
    outcomes: list[Outcome], settings: BenchSettings, weights: Weights | None, key: Callable[[Outcome], str]
) -> dict[str, Any]:
    """Average, interval and best-of the most passes, for each value of `key`; without weights each task counts once."""
    rows: dict[str, Any] = {}
    for name in sorted({key(o) for o in outcomes}):
        found = scores(o for o in outcomes if key(o) == name)
        mix = weights or found.counts()
        mean, ci95 = average(found.means(), mix, resamples=settings.resamples, seed=settings.seed).percent()
        best = round(100 * weighted_mean(found.best(found.most()), mix), 2)
        rows[name] = {"avg": mean, "ci95": ci95, "tasks": found.tasks, f"best_of_{found.most()}": best}
    return rows
