"""What scores mean: averages over weighted levels, and intervals that respect how tasks were drawn.

A task's passes share its difficulty, so tasks are what intervals resample, whole (clusters). Tasks were drawn level by level
(strata) in numbers that differ from the mix, so an average is the weighted mean of its levels' averages, and the bootstrap
resamples within each level. Everything here is pure: arrays in, numbers out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Interval:
    """A point estimate with its two-sided 95% interval, in the unit of the scores."""

    value: float
    low: float
    high: float

    def percent(self) -> tuple[float, list[float]]:
        return round(100 * self.value, 2), [round(100 * self.low, 2), round(100 * self.high, 2)]


def weighted_mean(values: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> float:
    """Each level's mean, weighted. Weights need not add up to 1; levels without tasks are no part of it."""
    return float(sum(share * values[level].mean() for level, share in shares_of(values, weights).items()))


def stratified_mean(
    values: Mapping[str, np.ndarray], weights: Mapping[str, float], *, resamples: int, seed: int
) -> Interval:
    """Weighted mean over levels with its bootstrap interval. `values[level]` is (N_level,): each task's own mean.

    Of a level's N tasks N - 1 are drawn with replacement (Rao and Wu 1988, section 2): N draws would understate the
    variance by (N - 1) / N, which matters in levels of ten. A level of one task adds nothing to the width: see `bounded.py` and `amounts.py`.
    """
    rng = np.random.default_rng(seed)  # one for all levels: their draws must not be alike
    means = np.zeros(resamples)
    for level, share in shares_of(values, weights).items():
        count = len(values[level])
        draws = rng.integers(0, count, size=(resamples, max(1, count - 1)))
        means += share * values[level][draws].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(weighted_mean(values, weights), float(low), float(high))


def shares_of(values: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> dict[str, float]:
    """The weights of the levels that have tasks, adding up to 1. Raises ValueError for a level that has none."""
    present = [level for level, found in values.items() if len(found)]
    if not present:
        raise ValueError("no task was scored: nothing to average")
    unknown = [level for level in present if not weights.get(level, 0) > 0]
    if unknown:
        raise ValueError(f"tasks of level {unknown[0]!r} were asked, but the mix gives it no weight")
    whole = sum(weights[level] for level in present)
    return {level: weights[level] / whole for level in present}
