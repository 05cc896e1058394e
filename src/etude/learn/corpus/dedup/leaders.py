"""The document kept in place of each: near duplicates chain (a like b, b like c, but a not like c), and a chain may be long.

The textbook keeps one document of all that hang together, and loses what is unlike it. Here the best of them (lowest rank, then lowest
number) leads only those that are like it; the best of the rest leads next, until nobody is left. So a dropped document always has a
kept one whose signature agrees with its own in `threshold` of the places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from etude.learn.corpus.dedup.union import Numbers

# Pairs of signatures looked at together: 2 MB of them.
PAIRS_AT_ONCE = 1 << 12


def in_blocks(ones: Numbers, others: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """The pairs, PAIRS_AT_ONCE at a time."""
    for start in range(0, len(ones), PAIRS_AT_ONCE):
        yield ones[start : start + PAIRS_AT_ONCE], others[start : start + PAIRS_AT_ONCE]


def leaders(
    roots: Numbers,
    ranks: Callable[[Numbers], NDArray[np.uint32]],
    similarities: Callable[[Numbers, Numbers], NDArray[np.float64]],
    threshold: float,
) -> Numbers:
    """(documents,) the kept document of each: itself where it is kept. `roots` says who hangs together."""
    kept = np.arange(len(roots), dtype=np.uint32)
    members = _with_company(roots)
    order = np.empty(len(members), dtype=np.uint64)  # rank, then number
    for start in range(0, len(members), PAIRS_AT_ONCE):
        block = members[start : start + PAIRS_AT_ONCE]
        order[start : start + len(block)] = (ranks(block).astype(np.uint64) << np.uint64(32)) | block
    group = roots[members]
    while len(members):
        names, group = np.unique(group, return_inverse=True)
        best = np.full(len(names), np.iinfo(np.uint64).max, dtype=np.uint64)
        np.minimum.at(best, group, order)
        leader = best[group].astype(np.uint32)  # the number is the low half
        far = np.concatenate([similarities(a, b) < threshold for a, b in in_blocks(members, leader)])
        kept[members[~far]] = leader[~far]
        members, order, group = members[far], order[far], group[far]
    return kept


def _with_company(roots: Numbers) -> Numbers:
    """The documents in sets of two and more."""
    company = roots != np.arange(len(roots), dtype=np.uint32)
    company[roots[company]] = True
    return np.flatnonzero(company).astype(np.uint32)
