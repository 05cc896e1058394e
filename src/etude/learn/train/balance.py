"""Which rank trains which segments, so that none waits long for another: rollouts differ in length a hundredfold. Pure.

A token costs its way through the weights, and attention every token that it sees, so twice the length costs more than twice (Composer 2
report 6.1: packing over data-parallel ranks accounts for that). What is dealt are *bundles*: neighbouring segments of one group, which
begin alike and whose common tokens run once (`shared_prefix`). A group is cut only where its bundle would cost more than a quarter
of a rank's share. Bundles go, the dearest first, each to the rank with the least so far (LPT, Graham 1969, SIAM J. Appl. Math. 17:2).

Bounds, for m ranks, load L_max of the fullest, mean load L, dearest bundle p:  L_max <= L + (1 - 1/m) p, hence L_max / L < 1.25
unless a single segment costs over a quarter of a rank's share; and L_max <= (4/3 - 1/(3m)) of the best dealing of these bundles.
Ties go to the earlier bundle and the lower rank, so the same batch is dealt alike on every machine.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from etude.core.trace.segment import Rollout
from etude.learn.model.count import ComputeCost

# A bundle may cost this share of what a rank should carry: at most so much more than the mean ends up on one rank. Finer cuts
# would compute more common beginnings twice.
FINEST = 0.25

Row = tuple[int, int]  # (rollout, segment)


@dataclass(frozen=True)
class Bundle:
    """Neighbouring segments of one group that stay on one rank."""

    rows: tuple[Row, ...]
    cost: float


def rows_to_train(rollouts: Sequence[Rollout]) -> list[Row]:
    """All segments with a sampled token that has a context. Rollouts of one group stay neighbours."""
    return [
        (r, s)
        for r in sorted(range(len(rollouts)), key=lambda r: rollouts[r].group)
        for s, segment in enumerate(rollouts[r].segments)
        if segment.sampled[1:].any()
    ]


def bundles(rollouts: Sequence[Rollout], cost: ComputeCost, ranks: int) -> list[Bundle]:
    """All rows to train, in their order, cut at borders of groups and where a bundle would cost more than FINEST of a rank's share."""
    whole = _cut(rollouts, cost, math.inf)
    if ranks == 1:
        return whole
    # Cuts only add to the work, so this is at most FINEST of what the ranks carry in the mean.
    return _cut(rollouts, cost, FINEST * sum(bundle.cost for bundle in whole) / ranks)


def _cut(rollouts: Sequence[Rollout], cost: ComputeCost, most: float) -> list[Bundle]:
    """Neighbours of one group together, up to a cost of `most` or one row."""
    out: list[Bundle] = []
    held: list[Row] = []
    spent = 0.0
    for row in rows_to_train(rollouts):
        length = len(rollouts[row[0]].segments[row[1]])
        alone = cost.of(length, [length])
        more = alone - cost.token * _common(rollouts, held[-1], row) if held else alone
        if held and (rollouts[held[-1][0]].group != rollouts[row[0]].group or spent + more > most):
            out.append(Bundle(tuple(held), spent))
            held, spent, more = [], 0.0, alone
        held.append(row)
        spent += more
    return [*out, Bundle(tuple(held), spent)] if held else out


def deal(costs: Sequence[float], ranks: int) -> list[list[int]]:
    """The numbers of the items for each rank, in rising order: longest processing time first. Raises ValueError for no rank."""
    if ranks < 1:
        raise ValueError(f"{ranks} ranks: it takes at least 1 to train")
    loads = [(0.0, rank) for rank in range(ranks)]  # a heap
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    for item in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, rank = heapq.heappop(loads)
        dealt[rank].append(item)
        heapq.heappush(loads, (load + costs[item], rank))
    return [sorted(items) for items in dealt]


def imbalance(costs: Sequence[float], dealt: Sequence[Sequence[int]]) -> float:
    """Load of the fullest rank over the mean; 1 is even, and so is nothing at all."""
    loads = [sum(costs[i] for i in items) for items in dealt]
    return max(loads) * len(loads) / sum(loads) if sum(loads) else 1.0


@dataclass(frozen=True)
class RankRows:
    """A batch over ranks: the rows of each, in the order in which one rank alone would train them."""

    rows: list[list[Row]]
    imbalance: float


def dealt(rollouts: Sequence[Rollout], cost: ComputeCost, ranks: int) -> RankRows:
    """What every rank works out for itself and agrees on with the others, for it follows from the batch alone."""
    if ranks == 1:
        return RankRows([rows_to_train(rollouts)], 1.0)
    found = bundles(rollouts, cost, ranks)
    costs = [bundle.cost for bundle in found]
    shares = deal(costs, ranks)
    return RankRows([[row for i in items for row in found[i].rows] for items in shares], imbalance(costs, shares))


def _common(rollouts: Sequence[Rollout], first: Row, second: Row) -> int:
    """Tokens at the beginning that both segments have. Tokens share only with equal experts too; that difference is not counted."""
    a, b = (rollouts[r].segments[s].ids for r, s in (first, second))
    length = min(len(a), len(b))
    differs = np.flatnonzero(a[:length] != b[:length])
    return int(differs[0]) if len(differs) else length
