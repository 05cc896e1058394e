"""The solvable share counts tasks, not attempts, and its interval holds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.solvable_share import solvable

PASSES = st.lists(
    st.tuples(st.sampled_from(["one-bug", "rename"]), st.lists(st.booleans(), min_size=1, max_size=8)),
    min_size=1,
    max_size=12,
)


def test_a_task_solved_once_is_solvable():
    found = solvable([("rename", [False] * 7 + [True]), ("one-bug", [False] * 8), ("rename", [True] * 8)], seed=0)
    assert (found.share, found.never, found.always) == (
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
    )
    assert found.passed == pytest.approx(9 / 24) and found.levels == {"one-bug": 0.0, "rename": 1.0}
    assert found.description().startswith("before step 1: 67% of 3 tasks are solvable in 8 attempts (95%: ")


@given(PASSES)
def test_shares_are_shares(passes):
    found = solvable(passes, seed=1)
    low, high = found.interval
    assert 0 <= low <= found.share <= high <= 1 and found.share + found.never == pytest.approx(1)
    assert found.always <= found.share
    assert high > low  # also where all or none were solved: a handful of tasks proves neither


def test_no_tasks_no_share():
    with pytest.raises(ValueError, match="no task was attempted"):
        solvable([], seed=0)
