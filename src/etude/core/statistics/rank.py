"""Do two measurements order policies alike? Spearman's rank correlation, and the suite measured against itself by halves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from etude.core.statistics.interval import shares_of

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
    low: float  # 5% of the splits lie below: how far halves may be apart, no interval of the correlation
    policies: int
    tasks: int


def split_half(
    policies: Mapping[str, Mapping[str, np.ndarray]],
    weights: Mapping[str, float] | None = None,
    *,
    seed: int,
    splits: int = HALVES,
) -> SplitHalf:
    """`policies[name][level]` is (N, K); tasks are cut at random into halves, level by level, `splits` times.

    A half's score is the average that is printed: levels weighed as for the whole suite, without `weights` each task once. The step
    from halves to the whole is 2r / (1 + r) (Spearman 1910, Brown 1910), taken of the mean; a mean that isn't positive stays as it
    is. A split in which a half ties all policies agrees on nothing: 0.
    """
    means = {name: {level: table.mean(axis=1) for level, table in own.items()} for name, own in policies.items()}
    sizes = [{level: len(values) for level, values in own.items()} for own in means.values()]
    tasks = sum(sizes[0].values()) if sizes else 0
    if len(policies) < POLICIES_MIN or tasks < 2:
        raise ValueError(
            f"{len(policies)} policies at {tasks} tasks: a split-half correlation needs at least {POLICIES_MIN} policies and 2 tasks"
        )
    if any(size != sizes[0] for size in sizes):
        raise ValueError("policies are ranked on the same tasks: their tables differ in length")
    rng = np.random.default_rng(seed)
    mix = weights or {level: float(count) for level, count in sizes[0].items()}
    sides = np.zeros((2, splits, len(policies)))  # only the order within a half counts: sums will do
    for level, share in shares_of(next(iter(means.values())), mix).items():
        values = np.array([own[level] for own in means.values()])  # (M, N)
        one = _halves(values.shape[1], splits, rng)
        for side, half in enumerate((one, ~one)):
            sides[side] += share * (half / np.maximum(half.sum(axis=1, keepdims=True), 1)) @ values.T
    found = np.array([agreement(one, other) for one, other in zip(*sides, strict=True)])
    mean = float(found.mean())
    whole = 2 * mean / (1 + mean) if mean > 0 else mean
    return SplitHalf(mean, whole, float(np.quantile(found, 0.05)), len(policies), tasks)


def _halves(count: int, splits: int, rng: np.random.Generator) -> np.ndarray:
    """Which of `count` tasks are in the first half, (splits, count); of an odd number one half at random has one more."""
    first = count // 2 + rng.integers(0, 2, splits) * (count % 2)
    return rng.random((splits, count)).argsort(axis=1).argsort(axis=1) < first[:, None]


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's correlation, or 0 where a side orders nothing. Sums of scores that differ by rounding only are ties."""
    try:
        return spearman(np.round(a, 12), np.round(b, 12))
    except NoRanking:
        return 0.0
