"""Which policies no other beats at their price: the Pareto front of score (up) against cost (down), and how sure that is.

Scores and costs come from the same attempts at the same tasks, so a resample draws tasks once for all policies and both axes: what is
hard is hard, and dear, for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from etude.core.statistics.amounts import amount
from etude.core.statistics.bounded import average
from etude.core.statistics.interval import Interval, shares_of

Values = Mapping[str, np.ndarray]  # level -> (N,): each task's own mean


@dataclass(frozen=True)
class PolicySamples:
    """One policy at one effort: scores and costs by level, the same tasks in the same order."""

    scores: Values
    costs: Values


@dataclass(frozen=True)
class FrontPoint:
    """Where a policy lies, and whether anyone is at least as good and as cheap, and better in one of the two."""

    score: Interval
    cost: Interval
    on_front: bool
    share: float  # of the resamples in which it is on the front


def front(
    points: Mapping[str, PolicySamples], weights: Mapping[str, float] | None = None, *, resamples: int, seed: int
) -> dict[str, FrontPoint]:
    """All points with both 95% intervals, the same as those of the averages, and the share of resamples in which each is on the front.

    Resamples are Rao and Wu's, as in `stratified`: of a level's N tasks N - 1, with replacement. Raises ValueError if the points
    don't have the same number of tasks of each level on both axes.
    """
    if not points:
        return {}
    sizes = [{level: len(v) for level, v in side.items()} for p in points.values() for side in (p.scores, p.costs)]
    if any(size != sizes[0] for size in sizes):
        raise ValueError("a Pareto front needs the same tasks of every level, with score and cost, for all policies")
    first = next(iter(points.values())).scores
    mix = weights or {level: float(len(found)) for level, found in first.items()}
    rng = np.random.default_rng(seed)
    scores, costs = np.zeros((resamples, len(points))), np.zeros((resamples, len(points)))
    for level, share in shares_of(first, mix).items():
        drawn = _draws(len(first[level]), resamples, rng)  # (R, N): each task's part of the mean
        scores += share * drawn @ np.array([p.scores[level] for p in points.values()]).T
        costs += share * drawn @ np.array([p.costs[level] for p in points.values()]).T
    shares = np.mean([on_front(s, c) for s, c in zip(scores, costs, strict=True)], axis=0)
    known = {
        name: (
            average(p.scores, mix, resamples=resamples, seed=seed),
            amount(p.costs, mix, resamples=resamples, seed=seed),
        )
        for name, p in points.items()
    }
    now = on_front(*(np.array([pair[side].value for pair in known.values()]) for side in (0, 1)))
    return {
        name: FrontPoint(score, cost, bool(now[i]), float(shares[i]))
        for i, (name, (score, cost)) in enumerate(known.items())
    }


def on_front(scores: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Which of the points (P,) no other beats: at least as good and as cheap, and better in one. Equal points don't beat each other.

    Values that differ by rounding only are equal.
    """
    s, c = (np.round(values / max(np.abs(values).max(), 1e-300), 12) for values in (scores, costs))
    as_good, as_cheap = s[:, None] >= s[None, :], c[:, None] <= c[None, :]
    better = (s[:, None] > s[None, :]) | (c[:, None] < c[None, :])
    return ~(as_good & as_cheap & better).any(axis=0)


def _draws(count: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Resamples as the part each task has in a mean: (R, N)."""
    size = max(1, count - 1)
    return rng.multinomial(size, np.full(count, 1 / count), size=resamples) / size
