"""What single tasks tell: those that order policies as the rest does, those that all solve, those that none solves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Extremes:
    """Rows of the tables that tell policies apart no longer, or not yet."""

    saturated: tuple[int, ...]  # full score in every pass of every policy
    impossible: tuple[int, ...]  # no score in any


def count_extremes(tables: Mapping[str, np.ndarray]) -> Extremes:
    """Of tables (N, K). Give the policies that compete: an agent that does nothing would let no task be saturated."""
    wide = _wide(tables)[0]
    least, most = wide.min(axis=1), wide.max(axis=1)
    return Extremes(tuple(np.flatnonzero(least >= 1).tolist()), tuple(np.flatnonzero(most <= 0).tolist()))


def discrimination(tables: Mapping[str, np.ndarray]) -> np.ndarray:
    """Each task's corrected item-total correlation, (N,): its score against the sum of all other tasks, in [-1, 1].

    One observation is one pass of one policy; each policy weighs the same however many passes it has. Around 0 a task is noise
    to this ranking, below 0 better policies fail it more (often a broken test). `nan` where a task or the rest never varies.
    (Nunnally and Bernstein 1994, section 8; the task itself is left out of the total, else every task correlates with itself.)
    """
    scores, weights = _wide(tables)
    rest = scores.sum(axis=0) - scores  # (N, observations)
    items, remainder = _centred(scores, weights), _centred(rest, weights)
    together = (items * remainder) @ weights
    spread = np.sqrt((items**2 @ weights) * (remainder**2 @ weights))
    flat = spread <= 1e-12  # rounding of a constant, not a spread of scores
    return np.where(flat, np.nan, np.clip(together / np.where(flat, 1, spread), -1, 1))


def _wide(tables: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All passes of all policies side by side (N, sum of K), and what each weighs."""
    if not tables:
        raise ValueError("no policy: tasks can't be judged")
    if len({len(table) for table in tables.values()}) > 1:
        raise ValueError("tasks are judged by policies that were asked all of them: the tables differ in length")
    weights = [np.full(table.shape[1], 1 / (table.shape[1] * len(tables))) for table in tables.values()]
    return np.concatenate(list(tables.values()), axis=1).astype(float), np.concatenate(weights)


def _centred(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return values - (values @ weights)[:, None]
