"""Staleness is bounded by admission, at the moment of training, and no finished work is thrown away (promise 5)."""

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.rl.window import StalenessWindow


def simulate(
    seed: int, groups_per_step: int, max_staleness: int, steps: int, parallel: int, reach: int | None = None
) -> list[list[int]]:
    """Generation with random latencies (heavy tail), a trainer and a weight sync with their own; returns staleness by step."""
    rng = random.Random(seed)
    window = StalenessWindow(groups_per_step, max_staleness, reach=reach)
    clock, events, order = 0.0, [], 0
    born: dict[int, int] = {}
    finished: set[int] = set()
    done: set[int] = set()
    served, admitted, running, training = 0, 0, 0, False
    staleness: list[list[int]] = []

    def later(delay: float, kind: str, value: int) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (clock + delay, order, kind, value))

    while len(staleness) < steps:
        while running < parallel and admitted < steps * groups_per_step and window.may_admit(served):
            window.admit(admitted, served)
            born[admitted] = served
            later(rng.paretovariate(1.2), "group", admitted)
            admitted, running = admitted + 1, running + 1
        if not training and (batch := window.pick(finished)) is not None:
            step = window.next_step
            if reach is not None:  # whom a batch passes by is at most so far ahead of it
                assert all(sum(other < group for other in born if other not in done) < reach for group in batch)
            window.train(batch)
            done |= set(batch)
            finished -= set(batch)
            staleness.append([step - born[group] for group in batch])
            training = True
            later(rng.expovariate(1.0), "trained", step + 1)
            continue
        assert events, f"deadlock at step {window.next_step}"
        clock, _, kind, value = heapq.heappop(events)
        if kind == "group":
            finished.add(value)
            running -= 1
        elif kind == "trained":
            training = False
            later(rng.expovariate(2.0), "served", value)
        else:
            served = max(served, value)
    return staleness


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    groups_per_step=st.integers(1, 6),
    max_staleness=st.integers(0, 5),
    parallel=st.integers(1, 40),
    window=st.sampled_from([None, 1, 2, 3]),
)
def test_staleness_never_exceeds_the_bound_and_nothing_deadlocks(
    seed, groups_per_step, max_staleness, parallel, window
):
    reach = None if window is None else window * groups_per_step
    staleness = simulate(seed, groups_per_step, max_staleness, 40, parallel, reach)
    assert all(0 <= value <= max_staleness for step in staleness for value in step)
    assert all(len(step) == groups_per_step for step in staleness)


def test_ten_thousand_steps_hold_the_bound_and_use_it():
    staleness = simulate(7, 4, 3, 10_000, 14)
    worst = max(value for step in staleness for value in step)
    assert worst == 3  # never above, and the freedom is used


def test_worked_example_of_the_docstring():
    window = StalenessWindow(groups_per_step=2, max_staleness=1)
    for group in range(4):
        window.admit(group, 0)
    assert not window.may_admit(0)
    assert window.pick([1, 2, 3]) == [1, 2]
    window.train([1, 2])
    window.admit(4, 1)
    window.admit(5, 1)
    assert not window.may_admit(1)
    assert window.pick([3, 4, 5]) is None  # group 0 is due: wait for it
    assert window.pick([0, 3, 4, 5]) == [0, 3]


def test_a_reach_of_one_batch_is_first_come_first_trained():
    window = StalenessWindow(groups_per_step=2, max_staleness=3, reach=2)
    for group in range(6):
        window.admit(group, 0)
    assert window.pick([1, 2, 3, 4, 5]) is None
    assert window.pick([0, 1, 5]) == [0, 1]
    with pytest.raises(ValueError, match="a reach of 1 groups holds no batch of 2"):
        StalenessWindow(groups_per_step=2, max_staleness=3, reach=1)


def test_zero_staleness_is_synchronous():
    window = StalenessWindow(groups_per_step=3, max_staleness=0)
    for group in range(3):
        window.admit(group, 0)
    assert not window.may_admit(0)
    window.train([0, 1, 2])
    assert not window.may_admit(0)  # version 1 is not served yet
    assert window.may_admit(1)


def test_training_a_late_group_is_refused():
    window = StalenessWindow(groups_per_step=1, max_staleness=0)
    window.admit(0, 0)
    window.next_step = 1
    with pytest.raises(ValueError, match="had to be trained by step 0"):
        window.train([0])
