"""A policy that solved tasks and solves none any more stops the run, and chance alone does not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_in_threads import a_run

from etude.core.trace.segment import Rollout
from etude.rl.collapse import BY_CHANCE, LEAST_BATCHES, CollapseWatch, PolicyCollapsed
from etude.rl.groups import RolloutGroup
from etude.rl.preflight import Window
from etude.rl.settings import RlSettings
from etude.rl.steps import StepRecord, append
from etude.rl.training_run import _looks

SETTINGS = RlSettings.model_validate({"groups_per_step": 2, "group_size": 2, "update": {"lr": 5e-5}})


def a_group(*outcomes: float, version: int = 0, malformed: float = 0.0) -> RolloutGroup[Rollout]:
    counters = {"turns": 4.0, "malformed_turns": malformed}
    rollouts = [
        Rollout(str(n), "t", 0, [], {"outcome": value}, counters, {"end": "message"})
        for n, value in enumerate(outcomes)
    ]
    return RolloutGroup(0, "t", len(rollouts), version, dict(enumerate(rollouts)))


def failures_until_stopped(watch: CollapseWatch, most: int = 2_000) -> int | None:
    failed = a_group(0.0, 0.0)
    for number in range(1, most + 1):
        try:
            watch.look(failed)
        except PolicyCollapsed:
            return number
    return None


def test_a_policy_that_solves_nothing_any_more_stops_the_run_with_what_to_change():
    watch = CollapseWatch(SETTINGS)
    for _ in range(30):
        watch.look(a_group(1.0, 0.0, malformed=0.2))
    watch.look(a_group(0.0, 0.0))
    watch.look(a_group(0.0, 0.25))  # a part of a task is not nothing
    with pytest.raises(PolicyCollapsed) as stopped:
        for _ in range(40):
            watch.look(a_group(0.0, 0.0, version=7, malformed=3.0))
    text = str(stopped.value)
    assert "none of the 16 rollouts of the last 8 groups, admitted from version 7 on" in text
    assert "of the 32 groups before, 31 had one" in text
    assert "Malformed turns: 75%, before 5%" in text
    assert "Lower rl.update.lr, which is 5e-05" in text


def test_a_policy_that_never_solved_anything_is_not_said_to_have_collapsed():
    assert failures_until_stopped(CollapseWatch(SETTINGS)) is None


def test_a_policy_that_seldom_solves_anything_gets_as_many_more_groups():
    watch = CollapseWatch(SETTINGS)
    for number in range(400):
        watch.look(a_group(float(number % 20 == 0), 0.0))
    needed = failures_until_stopped(watch)
    assert needed is not None and needed > 200


@given(st.integers(1, 200), st.integers(0, 200))
def test_a_run_goes_on_while_the_failures_could_be_chance(solved, unsolved):
    """The chance, computed factor by factor: each further failure has the share of failures among what was seen, with one more of each kind."""
    watch = CollapseWatch(SETTINGS)
    for group, count in ((a_group(0.0, 0.0), unsolved), (a_group(1.0, 0.0), solved)):
        for _ in range(count):
            watch.look(group)
    found = failures_until_stopped(watch)
    chance = lambda n: math.prod((unsolved + 1 + i) / (solved + unsolved + 2 + i) for i in range(n))
    if found is None:
        assert chance(2_000) > BY_CHANCE
    else:
        assert found >= LEAST_BATCHES * SETTINGS.groups_per_step and chance(found) < BY_CHANCE
        assert found == LEAST_BATCHES * SETTINGS.groups_per_step or chance(found - 1) >= BY_CHANCE * (1 - 1e-9)


def test_a_resumed_run_remembers_what_was_solved_before_and_stops_as_well():
    row = StepRecord(
        0,
        [0, 1],
        {"set_aside": 1.0, "turns": 4.0, "malformed_turns": 1.0},
        {},
        [{"outcome": value} for value in (1.0, 0.0, 0.0, 1.0)],
        [],
    )
    watch = CollapseWatch(SETTINGS)
    watch.remember([row] * 20)
    with pytest.raises(PolicyCollapsed, match=r"of the 60 groups before, 40 had one .* before 25%"):
        for _ in range(100):
            watch.look(a_group(0.0, 0.0))
    assert failures_until_stopped(CollapseWatch(SETTINGS)) is None


def test_a_run_looks_at_its_groups_with_what_its_steps_file_says_of_earlier_lives(tmp_path):
    run = replace(a_run(tmp_path / "none", tmp_path), settings=SETTINGS)
    solved = StepRecord(0, [0], {"turns": 4.0, "malformed_turns": 0.0}, {}, [{"outcome": 1.0}, {"outcome": 0.0}], [])
    for step in range(40):
        append(tmp_path / "steps.jsonl", replace(solved, step=step))
    looks = _looks(run, Window(4096, 4096))
    with pytest.raises(PolicyCollapsed, match="of the 40 groups before, 40 had one"):
        for _ in range(100):
            for look in looks:
                look(a_group(0.0, 0.0))
