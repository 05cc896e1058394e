"""Sums over items with 95% intervals that resample whole groups (files, sessions): items of one group share its difficulty.

Of few groups a bootstrap is too sure, and more so of amounts with a long tail, so it is widened to Student's interval of the ratio
(linearised, Cochran 1977, section 6.3) where that reaches further: on the logarithm for amounts, which are never negative, plain
for differences. Resamples are of G - 1 of G groups, as in `core/statistics/interval.py`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from etude.core.statistics.student import student_quantile

RESAMPLES = 2000
SEED = 0
FARTHEST = 700.0  # of an exponent: what a double still holds

Found = tuple[float, list[float] | None]


def ratio(parts: Sequence[float], wholes: Sequence[float], groups: Sequence[Hashable]) -> Found:
    """sum(parts) / sum(wholes) of parts of 0 and more, with its interval; none with fewer than two groups."""
    value, drawn, reach = _measured(np.asarray(parts, float), wholes, groups)
    if drawn is None or value <= 0:
        return value, drawn
    factor = math.exp(min(reach / value, FARTHEST))
    return value, [min(drawn[0], value / factor), max(drawn[1], value * factor)]


def difference(
    parts: Sequence[float], first: Sequence[float], wholes: Sequence[float], groups: Sequence[Hashable]
) -> Found:
    """`ratio` of `parts` less that of `first` on the same items, paired: the same groups are drawn on both sides."""
    value, drawn, reach = _measured(np.asarray(parts, float) - np.asarray(first, float), wholes, groups)
    return value, None if drawn is None else [min(drawn[0], value - reach), max(drawn[1], value + reach)]


def entry(found: Found) -> dict[str, Any]:
    """The figure as the document holds it."""
    return {"value": found[0], "ci95": found[1]}


def _measured(
    parts: np.ndarray, wholes: Sequence[float], groups: Sequence[Hashable]
) -> tuple[float, list[float] | None, float]:
    """The ratio, the bootstrap's interval, and how far Student's reaches to either side."""
    sums, whole = _by_group(parts, groups), _by_group(wholes, groups)
    value, count = float(sums.sum() / whole.sum()), len(sums)
    if count < 2:
        return value, None, 0.0
    draws = np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count - 1))
    drawn = np.percentile(sums[draws].sum(axis=1) / whole[draws].sum(axis=1), [2.5, 97.5])
    left = sums - value * whole  # adds up to 0
    error = math.sqrt(float(left @ left) * count / (count - 1)) / float(whole.sum())
    return value, [float(bound) for bound in drawn], student_quantile(count - 1) * error


def _by_group(values: Sequence[float] | np.ndarray, groups: Sequence[Hashable]) -> np.ndarray:
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros(len(places))
    np.add.at(sums, [places[group] for group in groups], np.asarray(values, float))
    return sums
