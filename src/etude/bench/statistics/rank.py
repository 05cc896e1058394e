"""Do two measurements order policies alike? Spearman's rank correlation, and the suite measured against itself by halves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

POLICIES_MIN = 3  # two policies agree or disagree, +1 or -1: no correlation
HALVES = 1000


class NoRanking(ValueError):
    """A side gives all policies the same score: there is no order to compare."""


def ranks(values: np.ndarray) -> np.ndarray:
    """1 for the smallest; equal values share the mean of their places. (M,) -> (M,)."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation of the ranks, ties at their mean rank (Kendall and Gibbons 1990, section 3).

    Raises NoRanking if all values of a side are equal, ValueError if the sides differ in length.
    """
    if len(a) != len(b):
        raise ValueError(f"a rank correlation needs pairs: {len(a)} values against {len(b)}")
    x, y = ranks(np.asarray(a, float)), ranks(np.asarray(b, float))
    x, y = x - x.mean(), y - y.mean()
    spread = float(x @ x) * float(y @ y)
    if spread == 0:
        raise NoRanking("all values of one side are equal: they give no order")
    return float(np.clip(x @ y / np.sqrt(spread), -1, 1))


@dataclass(frozen=True)
class SplitHalf:
    """How well random halves of the tasks agree on the order of policies."""

    halves: float  # mean rank correlation between two halves
    whole: float  # what two suites of the full size would reach, by Spearman and Brown
    low: float  # 5% of the splits lie below
    policies: int
    tasks: int


def split_half(tables: Mapping[str, np.ndarray], seed: int, splits: int = HALVES) -> SplitHalf:
    """`tables[policy]` is (N, K), tasks in the same order; scores are cut at random into halves of tasks, `splits` times.

    The step from halves to the whole is 2r / (1 + r) (Spearman 1910, Brown 1910), taken of the mean; a mean that isn't positive
    stays as it is. A split in which a half ties all policies agrees on nothing: 0.
    """
    means = _means(tables)  # (M, N)
    policies, tasks = means.shape
    if policies < POLICIES_MIN or tasks < 2:
        raise ValueError(
            f"{policies} policies at {tasks} tasks: a split-half correlation needs at least {POLICIES_MIN} policies and 2 tasks"
        )
    rng = np.random.default_rng(seed)
    found = np.empty(splits)
    for i in range(splits):
        order = rng.permutation(tasks)
        one, other = (means[:, half].mean(axis=1) for half in (order[: tasks // 2], order[tasks // 2 :]))
        found[i] = agreement(one, other)
    mean = float(found.mean())
    whole = 2 * mean / (1 + mean) if mean > 0 else mean
    return SplitHalf(mean, whole, float(np.quantile(found, 0.05)), policies, tasks)


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's correlation, or 0 where a side orders nothing. Sums of scores that differ by rounding only are ties."""
    try:
        return spearman(np.round(a, 12), np.round(b, 12))
    except NoRanking:
        return 0.0


def _means(tables: Mapping[str, np.ndarray]) -> np.ndarray:
    """Each policy's average by task: (M, N)."""
    if len({len(table) for table in tables.values()}) > 1:
        raise ValueError("policies are ranked on the same tasks: their tables differ in length")
    return np.array([table.mean(axis=1) for table in tables.values()])
