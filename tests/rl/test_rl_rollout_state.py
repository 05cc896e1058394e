"""A rollout's life goes forward only, but through a failure, and a long wait names whom it waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.groups import RolloutGroup
from etude.rl.rollout_state import RolloutPhase, RolloutSlot, RolloutState
from etude.rl.watchdog import TrainerActivity, Watchdog

SLOT = RolloutSlot(3, 1, "tally")


@given(st.booleans(), st.lists(st.sampled_from(RolloutPhase), max_size=12))
def test_a_life_goes_forward_only_and_is_trained_out_of_a_group_alone(ended: bool, way: list[RolloutPhase]):
    life = RolloutState(replace(SLOT, ended=ended))
    for phase in way:
        before = life.phase
        try:
            life.move(phase)
        except ValueError:
            assert life.phase is before
            continue
        if phase is RolloutPhase.FAILED:
            assert before in (RolloutPhase.PLACED, RolloutPhase.ROLLING, RolloutPhase.GRADING)
            life.again()
            assert life.phase is RolloutPhase.QUEUED and not life.slot.ended
        elif before is RolloutPhase.QUEUED:
            assert phase is (RolloutPhase.GRADING if life.slot.ended else RolloutPhase.PLACED)
        else:
            assert phase > before and (phase is not RolloutPhase.TRAINED or before is RolloutPhase.GROUPED)


def test_worked_example_of_the_docstring():
    group: RolloutGroup[str] = RolloutGroup(3, "tally", 2, version=0)
    first, second = group.place(0.0), group.place(0.0)
    group.note(first, RolloutPhase.ROLLING, 2.0, "host-1")
    group.fail(first, "its host died", 8, 60.0)
    again = group.place(60.0)
    assert again == RolloutSlot(3, 0, "tally", attempt=1) and group.lives[0].since_s == 60.0
    group.note(first, RolloutPhase.GRADING, 61.0)  # late news of the attempt that failed
    assert group.lives[0].phase is RolloutPhase.PLACED
    group.put(again, "good", 200.0)
    assert group.lives[0].phase is RolloutPhase.SCORED and not group.complete
    group.put(second, "bad", 500.0)
    assert [life.phase for life in group.lives] == [RolloutPhase.GROUPED] * 2 and group.members == ["good", "bad"]


def test_what_an_agent_left_before_a_kill_is_graded_first_and_after_a_failure_rolled_out_again():
    group: RolloutGroup[str] = RolloutGroup(3, "tally", 3, version=0, results={0: "good"}, ended={0: 0, 2: 1})
    assert group.lives[0].phase is RolloutPhase.GROUPED or not group.lives[0].slot.ended
    left = group.place(0.0)
    assert left == RolloutSlot(3, 2, "tally", attempt=1, ended=True) and group.lives[2].phase is RolloutPhase.GRADING
    group.fail(left, "its grader died", 8, 5.0)
    assert group.place(5.0) == RolloutSlot(3, 2, "tally", attempt=2) and group.lives[2].phase is RolloutPhase.PLACED


def test_what_can_not_be_read_any_more_is_placed_again():
    group: RolloutGroup[str] = RolloutGroup(3, "tally", 1, version=0, ended={0: 0})
    slot = group.place(0.0)
    group.note(slot, RolloutPhase.PLACED, 1.0)
    group.note(slot, RolloutPhase.ROLLING, 2.0, "host-1")
    assert group.lives[0].phase is RolloutPhase.ROLLING
    with pytest.raises(ValueError, match="does not run, so it can't start over"):
        RolloutState(SLOT).restart()


def test_an_attempt_that_is_over_can_neither_be_scored_nor_fail_again():
    group: RolloutGroup[str] = RolloutGroup(3, "tally", 1, version=0)
    slot = group.place()
    group.put(slot, "good")
    with pytest.raises(ValueError, match=r"attempt 0 of rollout 3\.0 does not run: .*grouped"):
        group.put(slot, "better")
    with pytest.raises(ValueError, match="does not run"):
        group.fail(slot, "late", 8)


def test_a_try_that_starts_over_in_a_fresh_sandbox_is_placed_again():
    group: RolloutGroup[str] = RolloutGroup(3, "tally", 1, version=0)
    slot = group.place()
    group.note(slot, RolloutPhase.ROLLING, 2.0, "host-1")
    group.note(slot, RolloutPhase.PLACED, 9.0)
    assert group.lives[0].phase is RolloutPhase.PLACED and group.lives[0].where == ""


def test_a_wait_is_reported_after_ten_seconds_and_then_each_time_it_doubled():
    lives = [RolloutState(RolloutSlot(37, member, "task-81"), RolloutPhase.GROUPED) for member in range(2)]
    lives += [
        RolloutState(RolloutSlot(37, 2, "task-81", 1), RolloutPhase.ROLLING, 2.0, "host-3"),
        RolloutState(RolloutSlot(37, 5, "task-81"), RolloutPhase.GRADING, 31.0),
    ]
    watchdog, said = Watchdog(), {}
    for now_s in range(100):
        message = watchdog.look(TrainerActivity("step 12", 0.0, 37, True), lives, float(now_s))
        if message:
            said[now_s] = message
    assert sorted(said) == [10, 20, 40, 80]
    assert said[40] == (
        "step 12 waits 40 s for group 37, due now: 37.2 (task-81, attempt 1) rolling at host-3 for 38 s; "
        "37.5 (task-81, attempt 0) grading for 9 s"
    )
    aside = TrainerActivity("step 13", 0.0, 37, False, aside=9)
    assert str(watchdog.look(aside, lives, 50.0)).startswith(
        "step 13 waits 50 s for group 37, 9 set aside since the last batch: 37.2 (task-81, attempt 1) rolling"
    )
    assert watchdog.look(TrainerActivity("training step 12", 95.0), lives, 100.0) is None
    assert (
        watchdog.look(TrainerActivity("training step 12", 95.0), lives, 106.0) == "training step 12 takes 11 s so far"
    )
