"""Sandboxes end at the right time, by a clock that the test turns."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.errors import UserError
from etude.sandbox.lifetime import Lifetime
from etude.sandbox.lifetimes.ttl_scheduler import TtlScheduler


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hours(clock: Clock) -> TtlScheduler:
    return TtlScheduler(clock)


def _watched(hours: TtlScheduler, ttl_s: float | None, idle_ttl_s: float | None) -> tuple[Lifetime, list[str]]:
    lifetime, said = Lifetime(ttl_s, idle_ttl_s, hours.clock), []
    hours.watch(lifetime, said.append)
    return lifetime, said


def test_a_ttl_ends_it_whatever_it_does(hours, clock) -> None:
    """Test 23 of docs/sandbox.md."""
    lifetime, said = _watched(hours, 60, None)
    lifetime.begin()
    clock.now += 59.9
    hours.end_expired()
    assert said == [] and lifetime.left_s == pytest.approx(0.1)
    clock.now += 0.1
    hours.end_expired()
    assert said == ["was ended: its ttl_s of 60 is over"] and hours.next == math.inf


def test_a_heartbeat_keeps_what_thinks_for_twenty_minutes(hours, clock) -> None:
    """Test 23 of docs/sandbox.md."""
    beaten, said = _watched(hours, None, 300)
    _, forgotten = _watched(hours, None, 300)
    for _ in range(20):
        clock.now += 60
        beaten.use()
        hours.end_expired()
    assert said == [] and forgotten == ["was ended: unused for its idle_ttl_s of 300; a heartbeat is a use"]
    clock.now += 300
    hours.end_expired()
    assert len(said) == 1


def test_a_running_call_is_a_use_however_long_it_takes(hours, clock) -> None:
    lifetime, said = _watched(hours, None, 10)
    first, second = lifetime.begin(), lifetime.begin()
    for _ in range(10):
        clock.now += 10
        hours.end_expired()
    first()
    clock.now += 20
    hours.end_expired()
    second()
    clock.now += 9
    hours.end_expired()
    assert said == []
    clock.now += 1
    hours.end_expired()
    assert len(said) == 1


def test_extend_makes_an_end_later_sooner_or_gives_one(hours, clock) -> None:
    lifetime, said = _watched(hours, 10, None)
    clock.now += 9
    lifetime.extend(10)
    clock.now += 9
    hours.end_expired()
    assert said == []
    lifetime.extend(0.5)
    assert hours.next == clock.now + 0.5
    endless, ended = _watched(hours, None, None)
    assert endless.left_s is None
    endless.extend(0.5)
    clock.now += 0.5
    hours.end_expired()
    assert len(said) == len(ended) == 1


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_a_time_that_is_none_is_refused(value: float, clock) -> None:
    for times in ((value, None), (None, value)):
        with pytest.raises(UserError, match="above 0"):
            Lifetime(*times, clock)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 40), st.integers(0, 2), st.sampled_from(["use", "begin", "finish", "extend", "nothing"])
        ),
        max_size=40,
    )
)
def test_whatever_is_done_each_ends_at_its_first_due_moment_and_never_before(steps) -> None:
    """Test 23 of docs/sandbox.md, against the plain definition; `next` never lies behind an end that is due."""
    clock = Clock()
    hours = TtlScheduler(clock)
    kinds = [(30.0, None), (None, 20.0), (50.0, 15.0)]
    watched = [_watched(hours, *kind) for kind in kinds]
    ends = [clock.now + (ttl or math.inf) for ttl, _ in kinds]
    finishes: list[list[Callable[[], None]]] = [[], [], []]
    used, calls, over = [clock.now] * 3, [0] * 3, [False] * 3
    for pause_s, which, act in steps:
        clock.now += pause_s
        hours.end_expired()
        for i, (_, idle_s) in enumerate(kinds):
            idle = idle_s is not None and calls[i] == 0 and clock.now >= used[i] + idle_s
            over[i] = over[i] or clock.now >= ends[i] or idle
            assert bool(watched[i][1]) == over[i]
        lifetime = watched[which][0]
        if act == "use":
            lifetime.use()
            used[which] = clock.now
        elif act == "begin":
            finishes[which].append(lifetime.begin())
            calls[which] += 1
        elif act == "finish" and calls[which]:
            finishes[which].pop()()
            calls[which] -= 1
            used[which] = clock.now
        elif act == "extend":
            lifetime.extend(25)
            ends[which] = clock.now + 25
    assert hours.next > clock.now or not steps
