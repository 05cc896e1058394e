"""All that is to be said of policies that were asked the same tasks: pairs, how sound their order is, and what single tasks tell.

`etude bench compare` prints it and a bench run's `report.json` holds it, so the two can't differ. Pure: tables of scores in [0, 1] in, a
document of figures in percent out; what can't be said (three policies are needed for an order, two tasks for a spread) is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from etude.core.statistics.pairs import Difference, matrix, paired_differences
from etude.core.statistics.power import detectable, pass_share, tasks_needed
from etude.core.statistics.rank import POLICIES_MIN, split_half

# What single tasks tell: those that order policies as the rest does, those that all solve, those that none solves.


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


Tables = Mapping[str, np.ndarray]  # level -> (N, K): a row a task, a column a pass


def comparison(
    policies: Mapping[str, Tables],
    ids: Mapping[str, Sequence[str]],
    weights: Mapping[str, float] | None = None,
    *,
    resamples: int,
    seed: int,
    wished: float | None = None,
) -> dict[str, Any]:
    """`ids[level]` names the rows of every policy's table of that level. Without `weights` each task counts once.

    With `wished`, in points, each pair says how many tasks would find such a difference. Raises ValueError if a policy was asked
    other tasks, or for a level without weight.
    """
    means = {name: {level: table.mean(axis=1) for level, table in own.items()} for name, own in policies.items()}
    pairs = matrix(means, weights, resamples=resamples, seed=seed)
    rows = [_pair(a, b, found, policies, means, weights, wished) for (a, b), found in pairs.items()]
    return {"pairs": rows, "ranking": _ranking(policies, weights, seed), "items": _items(policies, ids)}


def _pair(
    a: str,
    b: str,
    found: Difference,
    policies: Mapping[str, Tables],
    means: Mapping[str, Tables],
    weights: Mapping[str, float] | None,
    wished: float | None,
) -> dict[str, Any]:
    """b - a, in points."""
    changes = paired_differences(means[a], means[b])
    points, ci95 = found.points.percent()
    least = detectable(changes, weights=weights)
    from_passes = pass_share(policies[a], policies[b], weights)
    row = {
        "a": a,
        "b": b,
        "points": points,
        "ci95": ci95,
        "p": round(found.p, 6),
        "p_holm": round(found.p_holm, 6),
        "tasks": found.tasks,
        "tasks_changed": found.tasks_changed,
        "detectable_points": None if least is None else round(100 * least.difference, 2),
        "spread_from_passes": None if from_passes is None else round(from_passes, 4),
    }
    return row if wished is None else row | {"tasks_needed": tasks_needed(changes, wished / 100, weights=weights)}


def _ranking(policies: Mapping[str, Tables], weights: Mapping[str, float] | None, seed: int) -> dict[str, Any] | None:
    tasks = sum(len(table) for table in next(iter(policies.values()), {}).values())
    if len(policies) < POLICIES_MIN or tasks < 2:
        return None
    found = split_half(policies, weights, seed=seed)
    return {"halves": round(found.halves, 4), "whole": round(found.whole, 4), "low": round(found.low, 4)}


def _items(policies: Mapping[str, Tables], ids: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Discrimination from the least on: the first is to be read first."""
    names = [task_id for level in ids.values() for task_id in level]
    tables = {name: np.concatenate([own[level] for level in ids]) for name, own in policies.items()}
    extremes, correlations = count_extremes(tables), discrimination(tables)
    known = {task_id: round(float(r), 4) for task_id, r in zip(names, correlations, strict=True) if not np.isnan(r)}
    return {
        "saturated": [names[i] for i in extremes.saturated],
        "impossible": [names[i] for i in extremes.impossible],
        "discrimination": dict(sorted(known.items(), key=lambda pair: pair[1])),
    }
