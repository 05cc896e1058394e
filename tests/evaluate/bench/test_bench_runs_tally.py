"""What attempts cost: by session, at once on disk, core-seconds shared among the turns in flight."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message
from etude.evaluate.bench.prices import Price
from etude.evaluate.bench.runs.cost import cost_by_policy, dollars_of_usage, usage_rows
from etude.evaluate.bench.runs.tally import CoreClock, ParticipantUsage


def answering(*usages: Usage) -> ScriptedPolicy:
    return ScriptedPolicy([Completion(Message("assistant", "x"), usage=usage) for usage in usages])


async def ask(tally: ParticipantUsage, session: str, *usages: Usage) -> None:
    policy = tally.around(answering(*usages))
    for _ in usages:
        await policy.complete(Request(session, ()))


async def test_an_attempt_is_charged_for_the_try_that_was_scored(tmp_path: Path) -> None:
    tally = ParticipantUsage("p@low", tmp_path / "usage.jsonl")
    await ask(tally, "t#0.1", Usage(100, 40, 7))  # a try that was lost
    await ask(tally, "t#0.2", Usage(10, 4, 3, cache_write_tokens=2), Usage(20, 10, 5))
    await ask(tally, "t#1.1", Usage(1, 0, 1))
    charge = tally.take("t#0.2")
    assert (charge.input_tokens, charge.cached_tokens, charge.cache_write_tokens, charge.output_tokens) == (
        30,
        14,
        2,
        8,
    )
    assert charge.is_complete and charge.turns == 2 and tally.take("t#1.1").output_tokens == 1
    assert sum(row["input_tokens"] for row in usage_rows(tmp_path / "usage.jsonl")) == 131  # the bill has them all


async def test_a_turn_without_usage_makes_the_attempt_untold(tmp_path: Path) -> None:
    tally = ParticipantUsage("p@low", tmp_path / "usage.jsonl")
    await ask(tally, "t#0.1", Usage(10, 0, 3), Usage())
    assert not tally.take("t#0.1").is_complete and not tally.take("t#9.1").is_complete


async def test_whoever_pays_can_stop_it_and_the_turn_is_on_the_bill_all_the_same(tmp_path: Path) -> None:
    class Stop(Exception): ...

    def pay(attempt: str, usage: Usage) -> None:
        assert attempt == "t#0"
        raise Stop

    tally = ParticipantUsage("p@low", tmp_path / "usage.jsonl", pay=pay)
    with pytest.raises(Stop):
        await ask(tally, "t#0.1", Usage(10, 0, 3))
    assert len(usage_rows(tmp_path / "usage.jsonl")) == 1


def test_dollars_are_of_all_turns_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    row = '{"policy": "%s", "session": "t#0.1", "input_tokens": 1000000, "output_tokens": 500000}\n'
    path.write_text(row % "a" + row % "b" + row % "a" + (row % "a")[:30])
    from datetime import date

    price = Price("m", date(2026, 1, 1), 1.0, 0.1, 2.0, 10.0)
    assert cost_by_policy(path, {"a": price}.get) == {"a": 12.0}
    assert dollars_of_usage(price, Usage(10, 20, 1)) is None  # does not add up
    assert dollars_of_usage(price, Usage()) is None


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=60))
def test_core_seconds_of_turns_add_up_to_what_passed_while_any_was_in_flight(steps: list[tuple[bool, float]]) -> None:
    now, open_, total, busy = [0.0], [], 0.0, 0.0
    clock = CoreClock(lambda: now[0])
    for begins, passed in steps:
        now[0] += passed
        busy += passed if open_ else 0.0
        if begins or not open_:
            open_.append(clock.begin())
        else:
            total += clock.end(open_.pop(0))
    while open_:
        total += clock.end(open_.pop())
    assert total == pytest.approx(busy)
