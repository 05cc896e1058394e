"""What scores mean: averages, unbiased best-of-k, and intervals that respect that attempts at one task are not independent.

Everywhere a table of scores is (N tasks, K passes), values in [0, 1]. Intervals are percentile bootstraps over tasks (the
clusters): whole rows are drawn with replacement, since passes at the same task share its difficulty.
"""

from __future__ import annotations

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


def best_of(scores: np.ndarray, k: int) -> np.ndarray:
    """Expected best score of k of the K passes drawn without replacement, per task: (N, K) -> (N,).

    With scores sorted ascending s_1..s_K, the maximum of a random k-subset is s_i with probability C(i-1, k-1) / C(K, k).
    For scores of 0 and 1 this is the unbiased pass@k of Chen et al. 2021 (arXiv 2107.03374, section 2.1).
    """
    n_passes = scores.shape[1]
    if not 1 <= k <= n_passes:
        raise ValueError(f"best-of-{k} needs at least {k} passes a task; there are {n_passes}")
    weights = np.zeros(n_passes)
    weights[-1] = k / n_passes
    for i in range(n_passes - 2, k - 2, -1):  # C(i, k-1) / C(K, k), each from the one above it: no large binomials
        weights[i] = weights[i + 1] * (i + 1 - (k - 1)) / (i + 1)
    return np.sort(scores, axis=1) @ weights


def bootstrap(per_task: np.ndarray, *, resamples: int, seed: int) -> Interval:
    """Mean over tasks with a cluster-bootstrap interval. `per_task` is (N,): each task's own mean (or paired difference)."""
    if len(per_task) == 0:
        raise ValueError("no task was scored: nothing to average")
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(per_task), size=(resamples, len(per_task)))
    means = per_task[draws].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(per_task.mean()), float(low), float(high))


def paired(before: np.ndarray, after: np.ndarray, *, resamples: int, seed: int) -> Interval:
    """Mean of after - before by task, same tasks in the same order: (N, K1), (N, K2) -> interval."""
    if len(before) != len(after):
        raise ValueError(f"a paired comparison needs the same tasks: {len(before)} and {len(after)} given")
    return bootstrap(after.mean(axis=1) - before.mean(axis=1), resamples=resamples, seed=seed)


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4 ... up to `limit`: the k at which best-of-k is reported."""
    ks = [1]
    while ks[-1] * 2 <= limit:
        ks.append(ks[-1] * 2)
    return ks
