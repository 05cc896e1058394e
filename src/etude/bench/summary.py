"""From outcomes to the numbers of `report.json`: percentages in percent, lifts in points, intervals by task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from etude.bench.outcome import Outcome
from etude.bench.settings import BenchSettings
from etude.bench.statistics import best_of, bootstrap, paired, powers_of_two


def score_table(outcomes: Iterable[Outcome]) -> tuple[list[str], np.ndarray]:
    """Task ids (sorted) and their scores (N, K). Every task must have the same passes, else the comparison is not fair."""
    by_task: dict[str, dict[int, float]] = {}
    for outcome in outcomes:
        by_task.setdefault(outcome.task_id, {})[outcome.attempt] = outcome.score
    ids = sorted(by_task)
    passes = {task_id: sorted(by_task[task_id]) for task_id in ids}
    if len({tuple(p) for p in passes.values()}) > 1:
        raise ValueError("some tasks have fewer passes than others: the bench is not finished; run it again to go on")
    return ids, np.array([[by_task[i][p] for p in passes[i]] for i in ids], dtype=float)


def summarise(outcomes: list[Outcome], settings: BenchSettings) -> dict[str, Any]:
    """One policy's entry under `bench` in report.json."""
    _, scores = score_table(outcomes)
    interval = bootstrap(scores.mean(axis=1), resamples=settings.resamples, seed=settings.seed)
    average, ci95 = interval.percent()
    return {
        "avg": average,
        "ci95": ci95,
        "best_of": {str(k): round(100 * float(best_of(scores, k).mean()), 2) for k in powers_of_two(scores.shape[1])},
        "tokens": _mean(outcomes, lambda o: o.tokens),
        "tool_calls": _mean(outcomes, lambda o: o.tool_calls),
        "turns": _mean(outcomes, lambda o: o.turns),
        "seconds": _mean(outcomes, lambda o: o.seconds),
        "tasks": scores.shape[0],
        "passes": scores.shape[1],
        "by_category": _split(outcomes, settings, lambda o: o.category),
        "by_level": _split(outcomes, settings, lambda o: o.level),
    }


def lift(before: list[Outcome], after: list[Outcome], settings: BenchSettings) -> dict[str, Any]:
    """Paired difference of averages, in points, with its interval by task."""
    ids_before, table_before = score_table(before)
    ids_after, table_after = score_table(after)
    if ids_before != ids_after:
        raise ValueError("the two policies were asked different tasks: a paired lift needs the same ones")
    points, ci95 = paired(table_before, table_after, resamples=settings.resamples, seed=settings.seed).percent()
    return {"avg_points": points, "ci95": ci95}


def discovery(before: list[Outcome], after: list[Outcome], level: str, settings: BenchSettings) -> dict[str, Any]:
    """Did best-of-k rise where demonstrations never show the winning move, or did training only sharpen what was there?

    `k` is the largest power of two that both have passes for. The verdict needs the paired interval of best-of-k on
    `level` to lie above zero.
    """
    table_before = score_table(o for o in before if o.level == level)[1]
    table_after = score_table(o for o in after if o.level == level)[1]
    k = powers_of_two(min(table_before.shape[1], table_after.shape[1]))[-1]
    best_before, best_after = best_of(table_before, k), best_of(table_after, k)
    points, ci95 = bootstrap(best_after - best_before, resamples=settings.resamples, seed=settings.seed).percent()
    verdict = "discovery" if ci95[0] > 0 else "sharpening, no discovery"
    return {
        "level": level,
        "k": k,
        "before": round(100 * float(best_before.mean()), 2),
        "after": round(100 * float(best_after.mean()), 2),
        "points": points,
        "ci95": ci95,
        "verdict": verdict,
    }


def _mean(outcomes: list[Outcome], value: Callable[[Outcome], float]) -> float:
    return round(float(np.mean([value(o) for o in outcomes])), 3)


def _split(outcomes: list[Outcome], settings: BenchSettings, key: Callable[[Outcome], str]) -> dict[str, Any]:
    """Average, interval and best-of the most passes, for each value of `key`."""
    rows: dict[str, Any] = {}
    for name in sorted({key(o) for o in outcomes}):
        _, scores = score_table(o for o in outcomes if key(o) == name)
        average, ci95 = bootstrap(scores.mean(axis=1), resamples=settings.resamples, seed=settings.seed).percent()
        most = powers_of_two(scores.shape[1])[-1]
        best = round(100 * float(best_of(scores, most).mean()), 2)
        rows[name] = {"avg": average, "ci95": ci95, "tasks": scores.shape[0], f"best_of_{most}": best}
    return rows
