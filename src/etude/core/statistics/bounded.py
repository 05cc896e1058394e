"""Intervals near 0 and 100%: where a bootstrap sees no spread because hardly any task went the other way, and is far too sure.

Of 30 tasks solved to 98%, 30 of 100 benches show no failure at all; a bootstrap of such a bench is [100, 100]. So the interval of a
bounded score is the cluster bootstrap's, widened to Wilson's wherever that reaches further; they agree where there is spread to see.
The simulation in `tests/core/statistics/test_statistics_coverage.py` says how often such intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from etude.core.statistics.interval import Interval, shares_of, stratified_mean
from etude.core.statistics.student import freedom_of, student_quantile

Values = Mapping[str, np.ndarray]  # level -> (N,): each task's own mean
PRIOR = 0.1  # of a task: without, averages of partial scores are held 88 times in 100 and differences of pass@4 83; with 0.5 all are too wide
ROUNDING = 1e-12  # a mean of ones that a sum has left just under 1


def average(values: Values, weights: Mapping[str, float], *, resamples: int, seed: int) -> Interval:
    """Weighted mean of scores in [0, 1] with its 95% interval."""
    found = stratified_mean(values, weights, resamples=resamples, seed=seed)
    shares = shares_of(values, weights)
    below, above = wilson(values, shares, student_quantile(freedom_of(values, shares)), PRIOR)
    return _widened(found, below, above, least=0.0)


def difference(changes: Values, weights: Mapping[str, float], *, resamples: int, seed: int) -> Interval:
    """Weighted mean of paired differences in [-1, 1] with its 95% interval.

    What was gained and what was lost are two bounded scores of the same tasks; their intervals are joined with their correlation
    (the method MOVER, Zou and Donner 2008). Where no task differs, this still allows for rare ones that do.
    """
    found = stratified_mean(changes, weights, resamples=resamples, seed=seed)
    shares = shares_of(changes, weights)
    t = student_quantile(freedom_of(changes, shares))
    gained = {level: np.maximum(change, 0) for level, change in changes.items()}
    lost = {level: np.maximum(-change, 0) for level, change in changes.items()}
    (gain_down, gain_up), (loss_down, loss_up) = wilson(gained, shares, t, PRIOR), wilson(lost, shares, t, PRIOR)
    spread = math.sqrt(_error2(gained, gained, shares) * _error2(lost, lost, shares))
    r = _error2(gained, lost, shares) / spread if spread > 0 else 0.0
    below = math.sqrt(gain_down**2 + loss_up**2 - 2 * r * gain_down * loss_up)
    above = math.sqrt(gain_up**2 + loss_down**2 - 2 * r * gain_up * loss_down)
    return _widened(found, below, above, least=-1.0)


def wilson(values: Values, shares: Mapping[str, float], t: float, prior: float = 0.0) -> tuple[float, float]:
    """How far below and above the weighted mean p its interval reaches.

    Wilson's interval (1927) for p with an effective number of tasks in place of the count, as for complex surveys (Franco, Little,
    Louis and Slud 2019): Kish's count 1 / sum(share^2 / N) where all scores are 0 or 1 alike, more where they spread less.
    """
    p = float(np.clip(sum(share * values[level].mean() for level, share in shares.items()), 0, 1))
    count = 1 / sum(share**2 / len(values[level]) for level, share in shares.items())
    spread = _spread_share(p, count, _error2(values, values, shares), prior)
    if spread < ROUNDING:  # all the same partial score
        return 0.0, 0.0
    effective = count / spread
    middle = (p + t * t / (2 * effective)) / (1 + t * t / effective)
    half = t / (1 + t * t / effective) * math.sqrt(p * (1 - p) / effective + t * t / (4 * effective**2))
    return max(0.0, p - (middle - half)), max(0.0, middle + half - p)


def _spread_share(p: float, count: float, error2: float, prior: float) -> float:
    """Of the spread that scores all 0 or 1 would have, the part that these have: tasks by effective number.

    Each task that goes the other way tells something of it, count min(p, 1 - p) in all; `prior` more say "all 0 or 1". Where none
    goes the other way tasks are counted, since passes of a task may well all agree.
    """
    rare_count = count * min(p, 1 - p)
    if rare_count < ROUNDING or error2 < 0:
        return 1.0
    seen = error2 * count / (p * (1 - p))  # N / (N - 1) for one level and one pass of 0 and 1
    return (rare_count * seen + prior) / (rare_count + prior)


def _error2(one: Values, other: Values, shares: Mapping[str, float]) -> float:
    """Covariance of two weighted means over the same tasks; with itself, the squared error of one. A level of one task has the
    others' part: -1 if there are none."""
    parts = {
        level: share**2 * float((one[level] - one[level].mean()) @ (other[level] - other[level].mean())) / (n - 1) / n
        for level, share in shares.items()
        if (n := len(one[level])) > 1
    }
    if not parts:
        return -1.0
    known = sum(shares[level] ** 2 / len(one[level]) for level in parts)
    return sum(parts.values()) * sum(share**2 / len(one[level]) for level, share in shares.items()) / known


def _widened(found: Interval, below: float, above: float, *, least: float) -> Interval:
    low, high = min(found.low, max(least, found.value - below)), max(found.high, min(1.0, found.value + above))
    return Interval(found.value, low, high)
