"""Intervals of what attempts cost, and of differences in it: tokens, dollars and seconds, which are never negative and have a long tail.

A bootstrap of thirty tasks rarely draws the dear one that it has not seen, and its interval ends too low: of lognormal costs it holds
the truth in 88 of 100 benches. An error of such an amount is a factor rather than a term, so the bootstrap's interval is widened to
Student's on the logarithm of the mean (delta method, error / mean) wherever that reaches further; docs/bench.md says what is held then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from etude.core.statistics.interval import Interval, shares_of, stratified_mean
from etude.core.statistics.student import freedom_of, student_quantile

Values = Mapping[str, np.ndarray]  # level -> (N,): each task's own mean


def amount(values: Values, weights: Mapping[str, float], *, resamples: int, seed: int) -> Interval:
    """Weighted mean of amounts of 0 and more with its 95% interval. Raises ValueError for one below 0."""
    if any((found < 0).any() for found in values.values()):
        raise ValueError(f"an amount is never negative; there is {min(v.min() for v in values.values() if len(v)):g}")
    found = stratified_mean(values, weights, resamples=resamples, seed=seed)
    if found.value <= 0:
        return found
    shares = shares_of(values, weights)
    spread = _relative_spread(values)
    error = math.sqrt(sum(_error2(share, values[level], spread) for level, share in shares.items()))
    factor = math.exp(min(student_quantile(freedom_of(values, shares)) * error / found.value, 700.0))
    return Interval(found.value, min(found.low, found.value / factor), max(found.high, found.value * factor))


def change(values: Values, weights: Mapping[str, float], *, resamples: int, seed: int) -> Interval:
    """Weighted mean of differences that have no bounds, with its 95% interval: the bootstrap's, widened to Student's.

    One task alone has no width that could be known: its interval is the value itself.
    """
    found = stratified_mean(values, weights, resamples=resamples, seed=seed)
    shares = shares_of(values, weights)
    known = [level for level in shares if len(values[level]) > 1]
    error = math.sqrt(
        sum(shares[level] ** 2 * float(values[level].var(ddof=1)) / len(values[level]) for level in known)
    )
    half = student_quantile(freedom_of(values, shares)) * error
    return Interval(found.value, min(found.low, found.value - half), max(found.high, found.value + half))


def _error2(share: float, values: np.ndarray, spread: float) -> float:
    """A level's part of the variance of the weighted mean; of one task alone as if it spread as those of the other levels do."""
    own = float(values.var(ddof=1)) if len(values) > 1 else (spread * float(values[0])) ** 2
    return share**2 * own / len(values)


def _relative_spread(values: Values) -> float:
    """Standard deviation over mean, pooled over the levels that have two tasks; 0 if none has."""
    known = [(len(v) - 1, float((v / v.mean()).var(ddof=1))) for v in values.values() if len(v) > 1 and v.mean() > 0]
    return math.sqrt(sum(freedom * square for freedom, square in known) / sum(f for f, _ in known)) if known else 0.0
