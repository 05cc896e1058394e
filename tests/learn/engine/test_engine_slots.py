"""Slots: sticky by session, reused least recently first, never given to two."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.engine.slots import MIN_SHARED, PrefixTable, SlotTable


def test_a_session_comes_back_to_its_slot() -> None:
    table = SlotTable(2)
    assert table.take("a") == (0, False)
    table.park(0)
    assert table.take("b") == (1, False)
    assert table.take("a") == (0, True)


def test_the_least_recently_used_idle_slot_is_evicted() -> None:
    table = SlotTable(2)
    for session in ("a", "b"):
        taken = table.take(session)
        assert taken is not None
        table.park(taken[0])
    assert table.take("a") == (0, True)
    table.park(0)
    assert table.take("c") == (1, False) and table.evictions == 1
    assert table.slot_of("b") is None and table.slot_of("a") == 0


def test_busy_slots_are_not_given_away_and_a_session_runs_once() -> None:
    table = SlotTable(1)
    table.take("a")
    assert table.take("b") is None and table.take("a") is None


def test_release_of_a_busy_session_frees_its_slot_when_it_ends() -> None:
    table = SlotTable(1)
    table.take("a")
    table.release("a")
    assert table.take("b") is None
    table.park(0)
    assert table.slot_of("a") is None and table.take("b") == (0, False) and table.evictions == 0


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["take", "park", "release"]), st.integers(0, 5)), max_size=60))
def test_slots_are_conserved(acts: list[tuple[str, int]]) -> None:
    table, busy = SlotTable(3), {}
    for act, number in acts:
        session = f"s{number}"
        if act == "take":
            taken = table.take(session)
            assert (taken is None) == (session in busy or len(busy) == 3)
            if taken is not None:
                assert taken[0] not in busy.values()
                busy[session] = taken[0]
        elif act == "park" and session in busy:
            table.park(busy.pop(session))
        elif act == "release":
            table.release(session)
        assert table.busy == len(busy) and table.busy + len(table.idle) <= 3


def test_prefixes_prefer_the_whole_prompt_and_forget_with_the_slot() -> None:
    table, start = PrefixTable(), tuple(range(MIN_SHARED))
    table.add(0, (*start, 7))
    table.add(1, (*start, 8))
    table.add(2, (*start, 8))
    assert table.find((*start, 7)) == 0 and table.find((*start, 8)) == 1 and table.find((*start, 9)) == 0
    table.forget(1)
    assert table.find((*start, 8)) == 0
    table.forget(0)
    assert table.find((*start, 7)) is None
    assert table.find(start) is None  # too short to be worth it
