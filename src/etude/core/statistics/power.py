"""What a suite can see: the smallest true difference that a paired comparison would find, and what it would take to see less.

The spread is that of the paired differences seen, so it holds for two policies about as far apart as these. Student's t-test substitutes
for the sign-flip test, whose power it shares beyond about ten tasks that differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from etude.core.statistics.interval import shares_of
from etude.core.statistics.student import detectable_shift

POWER, ALPHA = 0.8, 0.05  # customary (Cohen 1988, section 2.4)
ROUNDING = 1e-12  # a spread of equal scores
TASKS_MOST = 10_000_000  # who needs more than this needs another question


@dataclass(frozen=True)
class Detectable:
    """In the unit of the scores."""

    difference: float  # found with this power if it is true
    error: float  # standard error of the mean difference
    freedom: int
    tasks: int
    power: float
    alpha: float


def detectable(
    differences: np.ndarray | Mapping[str, np.ndarray],
    power: float = POWER,
    alpha: float = ALPHA,
    *,
    weights: Mapping[str, float] | None = None,
) -> Detectable | None:
    """Smallest true mean difference that a two-sided test at `alpha` finds with `power`, from differences by task.

    The noncentral t distribution at N minus the number of levels degrees of freedom (Cohen 1988, section 2), not its normal limit,
    which promises too much of few tasks. None if no level has two tasks that differ: without a spread nothing can be said.
    """
    error, freedom, tasks = _error(differences, weights)
    if error == 0:
        return None
    return Detectable(error * detectable_shift(freedom, power, alpha), error, freedom, tasks, power, alpha)


def tasks_needed(
    differences: np.ndarray | Mapping[str, np.ndarray],
    wished: float,
    power: float = POWER,
    alpha: float = ALPHA,
    *,
    weights: Mapping[str, float] | None = None,
) -> int | None:
    """How many tasks like these, levels in the same proportions, would find a true difference of `wished`.

    None without a spread, as for `detectable`, or where ten million would not do.
    """
    if not wished > 0:
        raise ValueError(f"a wished difference is above 0, not {wished}")
    error, freedom, tasks = _error(differences, weights)
    if error == 0:
        return None
    levels = tasks - freedom

    def enough(count: int) -> bool:
        shift = detectable_shift(count - levels, power, alpha)
        return error * math.sqrt(tasks / count) * shift <= wished

    # The normal limit asks too few, by two or three tasks; from there it is a few steps up.
    normal = NormalDist()
    least = (error * math.sqrt(tasks) * (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) / wished) ** 2
    if least > TASKS_MOST:
        return None
    count = max(levels + 1, math.floor(least))
    while not enough(count):
        count += 1
    return count


def pass_share(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], weights: Mapping[str, float] | None = None
) -> float | None:
    """Of the variance of the mean difference, the part that more passes would take away, in [0, 1]; tables are (N, K) by level.

    The rest is how tasks differ, which only more tasks make smaller (Miller 2024, arXiv 2411.00640, section 3). None if a side has
    one pass, or if nothing varies.
    """
    changes = {level: after[level].mean(axis=1) - before[level].mean(axis=1) for level in after}
    whole = _error(changes, weights)[0] ** 2
    if whole == 0 or any(t.shape[1] < 2 for side in (before, after) for t in side.values()):
        return None
    noise = 0.0
    for level, share in shares_of(changes, weights or _once(changes)).items():
        if len(changes[level]) > 1:  # as in _error: a level of one task adds to neither
            each = sum(side[level].var(axis=1, ddof=1) / side[level].shape[1] for side in (before, after))
            noise += share**2 * float(np.mean(each)) / len(changes[level])
    return min(1.0, noise / whole)


def _error(
    differences: np.ndarray | Mapping[str, np.ndarray], weights: Mapping[str, float] | None
) -> tuple[float, int, int]:
    """Standard error of the weighted mean, its degrees of freedom, and the tasks behind it: levels of one task aside."""
    levels = differences if isinstance(differences, Mapping) else {"": np.asarray(differences, float)}
    variance, freedom, tasks = 0.0, 0, 0
    for level, share in shares_of(levels, weights or _once(levels)).items():
        count = len(levels[level])
        if count > 1:
            spread = float(levels[level].std(ddof=1))
            variance += share**2 * (spread if spread > ROUNDING else 0.0) ** 2 / count
            freedom, tasks = freedom + count - 1, tasks + count
    return math.sqrt(variance), freedom, tasks


def _once(levels: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Weights under which each task counts once."""
    return {level: float(len(found)) for level, found in levels.items()}
