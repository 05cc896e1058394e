"""Policies against each other on the same tasks: differences by task, their interval, and how often chance alone would do as much.

Difficulty is common to both sides and cancels, so a paired difference is far sharper than two averages held side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from etude.core.statistics.bounded import difference
from etude.core.statistics.interval import Interval, shares_of

Values = Mapping[str, np.ndarray]  # level -> (N,): each task's own mean

EXACT_TASKS = 20  # up to here all 2^N signs are tried (a few ms); beyond, a sample of them
FLIPS = 20_000  # p is then right to 0.003 at 0.05
CHUNK = 1000
TIE = 1e-12  # sums that differ by less differ by rounding


@dataclass(frozen=True)
class Difference:
    """after - before. `p` is of this pair alone; `p_holm` holds for all pairs of the same matrix together."""

    points: Interval
    p: float
    p_holm: float
    tasks: int
    tasks_changed: int  # those on which the two differ at all


def paired_differences(before: Values, after: Values) -> dict[str, np.ndarray]:
    """after - before by task, level by level; the same tasks in the same order, else the difference means nothing."""
    if {level: len(v) for level, v in before.items()} != {level: len(v) for level, v in after.items()}:
        raise ValueError("a paired comparison needs the same tasks of every level on both sides")
    return {level: after[level] - before[level] for level in after}


def sign_flip(changes: Values, weights: Mapping[str, float], *, seed: int) -> float:
    """Two-sided p-value of a weighted mean difference: the share of sign patterns that give one at least as large.

    If the two policies are alike, each task's difference might as well have had the other sign (Fisher 1935, section 21). Exact
    up to 20 tasks that differ at all (the others can't change the sum); above, (b + 1) / (m + 1) of m = 20,000 random patterns,
    which never understates (Phipson and Smyth 2010).
    """
    share = shares_of(changes, weights)
    parts = np.concatenate([share[level] / len(changes[level]) * changes[level] for level in share])
    parts = parts[np.abs(parts) > TIE * max(1.0, np.abs(parts).max(initial=0))]
    seen = abs(parts.sum()) - TIE
    if len(parts) <= EXACT_TASKS:
        sums = np.zeros(1)
        for part in parts:
            sums = np.concatenate([sums + part, sums - part])
        return float(np.mean(np.abs(sums) >= seen))
    rng = np.random.default_rng(seed)
    beyond = 0
    for _ in range(FLIPS // CHUNK):
        signs = rng.integers(0, 2, size=(CHUNK, len(parts)), dtype=np.int8) * 2 - 1
        beyond += int((np.abs(signs @ parts) >= seen).sum())
    return (beyond + 1) / (FLIPS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of which all those under alpha may be believed together: the chance of any false one is at most alpha.

    The smallest times m, the next times m - 1, and so on, never falling (Holm 1979).
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - done)))
        adjusted[place] = highest
    return adjusted


def compare(
    before: Values, after: Values, weights: Mapping[str, float] | None = None, *, resamples: int, seed: int
) -> Difference:
    """One pair of scores in [0, 1]. Without weights each task counts once."""
    changes = paired_differences(before, after)
    mix = weights or {level: float(len(change)) for level, change in changes.items()}
    points = difference(changes, mix, resamples=resamples, seed=seed)
    p = sign_flip(changes, mix, seed=seed)
    found = np.concatenate(list(changes.values()))
    return Difference(points, p, p, len(found), int((np.abs(found) > TIE).sum()))


def matrix(
    policies: Mapping[str, Values], weights: Mapping[str, float] | None = None, *, resamples: int, seed: int
) -> dict[tuple[str, str], Difference]:
    """All pairs (before, after) in the order given, each once, with Holm's correction over them."""
    pairs = list(combinations(policies, 2))
    found = [compare(policies[a], policies[b], weights, resamples=resamples, seed=seed) for a, b in pairs]
    corrected = holm([d.p for d in found])
    return {pair: replace(d, p_holm=p) for pair, d, p in zip(pairs, found, corrected, strict=True)}
