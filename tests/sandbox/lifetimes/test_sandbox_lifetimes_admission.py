"""Whose turn it is: bounds that hold, first come first served, no one waits without bound, nothing left of those who gave up."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.errors import CapacityExhausted
from etude.sandbox.lifetimes.admission import Admission, TokenBucket, open_queue


def test_ten_times_too_many_are_served_in_the_order_in_which_they_came() -> None:
    """Test 25 of docs/sandbox.md, with a fake clock: 20 of each second's creates fit, 200 come, each lives 0.5 s."""
    now, chance = [0.0], random.Random(5)
    admission = Admission(max_live=10, creates_per_s=20, max_waiting=400, clock=lambda: now[0])
    admitted: list[tuple[float, int]] = []
    ends: list[float] = []
    refused, most = 0, 0
    for _ in range(1000):
        now[0] += 0.01
        for _ in range(chance.choice([1, 2, 3])):
            try:
                admission.arrive()
            except CapacityExhausted as error:
                refused += 1
                assert 0.1 <= error.retry_after_s <= 60
        for end in [end for end in ends if end <= now[0]]:
            ends.remove(end)
            admission.leave()
        for ticket in admission.admit():
            admitted.append((now[0], ticket))
            ends.append(now[0] + 0.5)
        most = max(most, admission.live)
    tickets = [ticket for _, ticket in admitted]
    assert tickets == sorted(tickets), "no one overtakes"
    assert most <= 10 and admission.waiting <= 400 and refused > 1000
    seconds = [sum(s <= at < s + 1 for at, _ in admitted) for s in range(1, 10)]
    assert all(15 <= count <= 21 for count in seconds)


@given(
    rate=st.floats(0.5, 500),
    pauses=st.lists(st.floats(0, 3), max_size=50),
)
def test_a_bucket_never_gives_more_than_a_burst_and_its_rate(rate: float, pauses: list[float]) -> None:
    now = [0.0]
    bucket = TokenBucket(rate, lambda: now[0])
    taken = 0
    for pause_s in pauses:
        now[0] += pause_s
        while bucket.take():
            taken += 1
        assert taken <= max(1.0, rate) + now[0] * rate + 1e-6 * (1 + taken)
        assert 0 < bucket.wait_s() <= 1 / rate + 1e-9
        now[0] += bucket.wait_s()
        assert bucket.take(), "what it says to wait is enough"
        taken += 1


@given(st.lists(st.sampled_from(["arrive", "leave", "withdraw", "admit"]), max_size=80))
def test_live_and_waiting_stay_within_their_bounds_whatever_comes(steps: list[str]) -> None:
    admission = Admission(3, None, 5, lambda: 0.0)
    line: list[int] = []
    live = 0
    for step in steps:
        if step == "arrive":
            if len(line) == 5:
                with pytest.raises(CapacityExhausted):
                    admission.arrive()
            else:
                line.append(admission.arrive())
        elif step == "leave" and live:
            admission.leave()
            live -= 1
        elif step == "withdraw" and line:
            assert admission.withdraw(line.pop(len(line) // 2))
        elif step == "admit":
            room = min(3 - live, len(line))
            assert admission.admit() == line[:room]
            line, live = line[room:], live + room
        assert (admission.live, admission.waiting) == (live, len(line))


async def test_a_full_house_admits_in_order_as_others_leave() -> None:
    egress = open_queue(max_live=2, creates_per_s=None, max_waiting=10, patience_s=10)
    entered: list[int] = []

    async def one(number: int) -> None:
        await egress.enter()
        entered.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(6)]
    await asyncio.sleep(0.01)
    assert entered == [0, 1] and egress.admission.waiting == 4
    tasks[2].cancel()
    egress.leave()
    await asyncio.sleep(0.01)
    assert entered == [0, 1, 3]
    for _ in range(3):
        egress.leave()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert entered == [0, 1, 3, 4, 5] and egress.admission.waiting == 0


async def test_patience_is_bounded_and_who_gives_up_leaves_no_trace() -> None:
    """Test 25 of docs/sandbox.md: CapacityExhausted(retry_after), no partial state."""
    egress = open_queue(max_live=1, creates_per_s=None, max_waiting=1, patience_s=0.05)
    await egress.enter()
    with pytest.raises(CapacityExhausted, match="none became free within 0.05 s"):
        await egress.enter()
    waiting = asyncio.create_task(egress.enter())
    await asyncio.sleep(0)
    with pytest.raises(CapacityExhausted, match="1 creates wait already") as full:
        await egress.enter()
    assert full.value.retry_after_s >= 0.1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (egress.admission.live, egress.admission.waiting) == (1, 0)
    egress.leave()
    await egress.enter()


async def test_who_is_cancelled_at_the_moment_of_its_turn_gives_it_back() -> None:
    egress = open_queue(max_live=1, creates_per_s=None, max_waiting=5, patience_s=10)
    await egress.enter()
    first, second = asyncio.create_task(egress.enter()), asyncio.create_task(egress.enter())
    await asyncio.sleep(0)
    egress.leave()  # the first one's turn
    first.cancel()
    await asyncio.wait_for(second, 5)
    assert egress.admission.live == 1


async def test_creates_are_spread_to_the_rate() -> None:
    egress = open_queue(max_live=100, creates_per_s=50, max_waiting=100, patience_s=10)
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    await asyncio.gather(*(egress.enter() for _ in range(60)))
    assert loop.time() - start_s >= 0.19  # 50 at once, the other ten over 0.2 s
