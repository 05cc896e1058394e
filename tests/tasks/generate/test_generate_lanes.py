"""The lane scheduler: balanced at any moment, fair to slow projects, a pure function of the decisions."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.generate.run.lanes import MAX_FAILURES_IN_A_ROW, Lane, LaneScheduler

LANES = [Lane(category, project, f"{category}-maker") for category in "abc" for project in ("p", "q", "r")]


def worked(turns: LaneScheduler, steps: int, good) -> list[Lane]:
    went = []
    for _ in range(steps):
        lane = turns.next()
        if lane is None:
            break
        went.append(lane)
        turns.settle(lane, taken=good(lane))
    return went


@given(st.integers(1, 60))
def test_a_run_stopped_at_any_time_is_balanced_over_categories_and_projects(steps: int) -> None:
    turns = LaneScheduler()
    turns.open(LANES)
    went = worked(turns, steps, lambda lane: True)
    by_category = Counter(lane.category for lane in went)
    by_place = Counter((lane.category, lane.project) for lane in went)
    assert max(by_category.values()) - min(by_category[name] for name in "abc") <= 1
    assert max(by_place.values()) - min(by_place[name, p] for name in "abc" for p in "pqr") <= 1


def test_a_category_that_yields_nothing_does_not_use_up_the_budget() -> None:
    turns = LaneScheduler()
    turns.open(LANES)
    went = Counter(lane.category for lane in worked(turns, 90, lambda lane: lane.category != "a"))
    assert went["b"] > 12 and went["c"] > 12
    assert went["a"] < 90 * 0.7


def test_a_lane_without_any_yield_is_closed_with_the_reason() -> None:
    turns = LaneScheduler()
    turns.open(LANES[:1])
    assert len(worked(turns, 1000, lambda lane: False)) == MAX_FAILURES_IN_A_ROW
    assert "no tasks" in turns.closed[LANES[0]] and turns.is_done


@given(st.integers(1, 20), st.integers(1, 4))
def test_no_more_candidates_start_than_the_count_needs(count: int, jobs: int) -> None:
    turns = LaneScheduler(count=count)
    turns.open(LANES)
    flying: list[Lane] = []
    while not turns.is_done:
        while len(flying) < jobs and (lane := turns.next()) is not None:
            flying.append(lane)
        assert turns.taken + len(flying) <= count
        turns.settle(flying.pop(0), taken=True)
    assert turns.taken == count


def test_a_full_category_gets_no_more_turns() -> None:
    turns = LaneScheduler(per_category=2)
    turns.open(LANES)
    went = Counter(lane.category for lane in worked(turns, 100, lambda lane: True))
    assert went == {"a": 2, "b": 2, "c": 2} and turns.is_done


def test_decisions_of_an_earlier_run_count() -> None:
    turns = LaneScheduler()
    for _ in range(5):
        turns.record(LANES[0], taken=True)
    turns.open(LANES)
    assert {lane.category for lane in worked(turns, 6, lambda lane: True)} == {"b", "c"}


def test_a_project_with_slow_tests_gets_fewer_turns_but_some() -> None:
    turns = LaneScheduler()
    turns.open([Lane("tests", "quick", "t"), Lane("tests", "slow", "t")])
    seconds = {"quick": 2.0, "slow": 20.0}
    came = []
    for _ in range(110):
        lane = turns.next()
        assert lane is not None
        came.append(lane.project)
        turns.settle(lane, taken=True, seconds=seconds[lane.project])
    assert 20 <= came.count("slow") <= 32  # by count alone it were 55, by time alone 10


def test_time_does_not_change_the_balance_of_categories() -> None:
    turns = LaneScheduler()
    turns.open([Lane("tests", "p", "t"), Lane("review", "p", "r")])
    came = []
    for _ in range(40):
        lane = turns.next()
        assert lane is not None
        came.append(lane.category)
        turns.settle(lane, taken=True, seconds=100.0 if lane.category == "tests" else 1.0)
    assert came.count("tests") == 20


def test_large_tasks_are_a_third_of_a_set_of_all_categories() -> None:
    turns = LaneScheduler()
    lanes = [Lane(category, project, category) for category in "abcdefghij" for project in "pqr"]
    turns.open([*lanes, *(Lane("a", project, "large", True) for project in "pqr")])
    came = worked(turns, 300, lambda lane: True)
    large = [lane for lane in came if lane.large]
    assert 90 <= len(large) <= 110 and {lane.project for lane in large} == set("pqr")
    assert sum(lane.category == "a" and not lane.large for lane in came) == 20


def test_a_project_that_was_slow_in_one_category_waits_in_the_others_but_gets_a_turn() -> None:
    turns = LaneScheduler()
    projects = ("quick", "other", "slow")
    turns.open([Lane(category, project, category) for category in "abcdef" for project in projects])
    came = []
    for _ in range(120):
        lane = turns.next()
        assert lane is not None
        came.append(lane)
        turns.settle(lane, taken=True, seconds=100.0 if lane.project == "slow" else 10.0)
    first = [lane.category for lane in came[:36] if lane.project == "slow"]
    assert len(first) <= 6  # in all six categories by turns it were 12
    assert {lane.category for lane in came if lane.project == "slow"} == set("abcdef")
