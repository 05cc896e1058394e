"""Sums over items with intervals that draw whole groups (files, sessions) anew: items of one group share its difficulty."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
SEED = 0


def ratio(
    parts: Sequence[float], wholes: Sequence[float], groups: Sequence[Hashable]
) -> tuple[float, list[float] | None]:
    """sum(parts) / sum(wholes) and its 95% interval by group; no interval with fewer than two groups."""
    sums, whole = _by_group(parts, groups), _by_group(wholes, groups)
    value = float(sums.sum() / whole.sum())
    return value, _interval(sums[_draws(len(sums))].sum(1) / whole[_draws(len(sums))].sum(1)) if len(sums) > 1 else None


def difference(
    parts: Sequence[float], first: Sequence[float], wholes: Sequence[float], groups: Sequence[Hashable]
) -> tuple[float, list[float] | None]:
    """`ratio` of `parts` less that of `first` on the same items, paired: the same groups are drawn on both sides."""
    return ratio(np.asarray(parts, float) - np.asarray(first, float), wholes, groups)  # type: ignore[arg-type]


def entry(found: tuple[float, list[float] | None]) -> dict[str, Any]:
    """As it stands in the document."""
    return {"value": found[0], "ci95": found[1]}


def _by_group(values: Sequence[float], groups: Sequence[Hashable]) -> np.ndarray:
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros(len(places))
    np.add.at(sums, [places[group] for group in groups], np.asarray(values, float))
    return sums


def _draws(count: int) -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count))


def _interval(values: np.ndarray) -> list[float]:
    return [float(bound) for bound in np.percentile(values, [2.5, 97.5])]
