"""Union-find and the choice of the kept ones, against the loops that they replace."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.dedup.index import leaders
from etude.learn.corpus.dedup.records import Union

COUNT = 12
PAIRS = st.lists(st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1)), max_size=10), max_size=4)


@settings(max_examples=100, deadline=None)
@given(PAIRS)
def test_what_is_joined_hangs_together_and_nothing_else(batches: list[list[tuple[int, int]]]) -> None:
    union = Union(COUNT)
    sets = [{n} for n in range(COUNT)]
    for batch in batches:
        pairs = np.array(batch, dtype=np.uint32).reshape(-1, 2)
        union.join(pairs[:, 0], pairs[:, 1])
        for a, b in batch:
            whole = sets[a] | sets[b]
            for n in whole:
                sets[n] = whole
    expected = [min(members) for members in sets]
    assert union.roots(np.arange(COUNT, dtype=np.uint32)).tolist() == expected
    assert union.all_roots().tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=25))
def test_the_best_leads_those_that_are_like_it_and_no_one_is_led_by_an_unlike_one(
    rows: list[tuple[int, int, int]],
) -> None:
    sets, ranks, places = (np.array(column) for column in zip(*rows, strict=True))
    roots = np.array([int(np.flatnonzero(sets == s)[0]) for s in sets], dtype=np.uint32)

    def alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return 1 - np.abs(places[a] - places[b]) / 20

    kept = leaders(roots, lambda numbers: ranks[numbers].astype(np.uint32), alike, 0.8)
    waiting = set(range(len(rows)))
    expected = [0] * len(rows)
    while waiting:
        best = min(waiting, key=lambda n: (ranks[n], n))
        led = {n for n in waiting if roots[n] == roots[best] and alike(np.array([n]), np.array([best]))[0] >= 0.8}
        for n in led:
            expected[n] = best
        waiting -= led
    assert kept.tolist() == expected
