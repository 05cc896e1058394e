"""Intervals near 0 and 100%: where a bootstrap sees no spread because hardly any task went the other way, and is far too sure.

Of 30 tasks solved to 98%, 30 of 100 benches show no failure at all; a bootstrap of such a bench is [100, 100]. So the interval of a
bounded score is the cluster bootstrap's, widened to Wilson's wherever that reaches further; they agree where there is spread to see.
The simulation in `tests/bench/test_bench_statistics_coverage.py` says how often such intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from etude.bench.statistics.interval import Interval, shares_of, stratified
from etude.bench.statistics.student import freedom_of, student_quantile

Values = Mapping[str, np.ndarray]  # level -> (N,): each task's own mean
PRIOR = 0.1  # of a task: without, averages of partial scores and of best-of-k are held 88 to 94 times in 100; differences need none
ROUNDING = 1e-12  # a mean of ones that a sum has left just under 1


def average(values: Values, weights: Mapping[str, float], *, resamples: int, seed: int) -> Interval:
    """Weighted mean of scores in [0, 1] with its 95% interval."""
    found = stratified(values, weights, resamples=resamples, seed=seed)
    shares = shares_of(values, weights)
    t = student_quantile(freedom_of(values, shares))
    below = above = 0.0
    for level, share in shares.items():
        down, up = wilson(values[level], t, PRIOR)
        below, above = below + (share * down) ** 2, above + (share * up) ** 2
    return _widened(found, math.sqrt(below), math.sqrt(above), least=0.0)


def difference(changes: Values, weights: Mapping[str, float], *, resamples: int, seed: int) -> Interval:
    """Weighted mean of paired differences in [-1, 1] with its 95% interval.

    What was gained and what was lost are two bounded scores of the same tasks; their intervals are joined with their correlation
    (the method MOVER, Zou and Donner 2008; levels are joined so too). Where no task differs, this still allows for rare ones that do.
    """
    found = stratified(changes, weights, resamples=resamples, seed=seed)
    shares = shares_of(changes, weights)
    t = student_quantile(freedom_of(changes, shares))
    below = above = 0.0
    for level, share in shares.items():
        gained, lost = np.maximum(changes[level], 0), np.maximum(-changes[level], 0)
        (gain_down, gain_up), (loss_down, loss_up) = wilson(gained, t), wilson(lost, t)
        r = _correlation(gained, lost)
        below += share**2 * (gain_down**2 + loss_up**2 - 2 * r * gain_down * loss_up)
        above += share**2 * (gain_up**2 + loss_down**2 - 2 * r * gain_up * loss_down)
    return _widened(found, math.sqrt(below), math.sqrt(above), least=-1.0)


def wilson(values: np.ndarray, t: float, prior: float = 0.0) -> tuple[float, float]:
    """How far below and above its mean p the interval of a level's average reaches.

    Wilson's interval (1927) for p with an effective number of tasks in place of the count, as for complex surveys (Franco, Little,
    Louis and Slud 2019).
    """
    p = float(np.clip(values.mean(), 0, 1))
    share = _spread_share(values, p, prior)
    if share < ROUNDING:  # all the same partial score
        return 0.0, 0.0
    effective = len(values) / share
    middle = (p + t * t / (2 * effective)) / (1 + t * t / effective)
    half = t / (1 + t * t / effective) * math.sqrt(p * (1 - p) / effective + t * t / (4 * effective**2))
    return max(0.0, p - (middle - half)), max(0.0, middle + half - p)


def _spread_share(values: np.ndarray, p: float, prior: float) -> float:
    """Of the spread that scores all 0 or 1 would have, the part that these have: tasks by effective number.

    Each task that goes the other way tells something of it, count min(p, 1 - p) in all; `prior` more say "all 0 or 1". Where none
    goes the other way tasks are counted, since passes of a task may well all agree.
    """
    count, told = len(values), len(values) * min(p, 1 - p)
    if count == 1 or told < ROUNDING:
        return 1.0
    seen = float(values.var(ddof=1)) / (p * (1 - p))  # N / (N - 1) for one pass of 0 and 1
    return (told * seen + prior) / (told + prior)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    spread = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / spread if spread > 0 else 0.0


def _widened(found: Interval, below: float, above: float, *, least: float) -> Interval:
    low, high = min(found.low, max(least, found.value - below)), max(found.high, min(1.0, found.value + above))
    return Interval(found.value, low, high)
