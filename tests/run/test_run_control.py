"""The control's tasks: RL's own, and beyond them others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.factory.exercises.source import ExerciseSource
from etude.factory.settings import ExerciseSettings
from etude.rl.schedule import task_list
from etude.rl.settings import RlSettings
from etude.run.practice import Practice
from etude.run.stages.attempts import control_tasks


def practice(steps: int, seed: int, tasks: int = 400) -> Practice:
    source = ExerciseSource(ExerciseSettings(train_tasks=tasks))
    return Practice(source, RlSettings(steps=steps, groups_per_step=4, seed=seed))


@given(steps=st.integers(1, 20), seed=st.integers(0, 99), share=st.floats(0.01, 2.0))
def test_it_tries_rls_tasks_first_and_none_twice(steps: int, seed: int, share: float) -> None:
    found = practice(steps, seed)
    own = task_list(found.settings, found.source).task_ids
    tasks = control_tasks(found, share)
    assert len(tasks) == len(set(tasks)) == max(1, round(len(own) * share))
    assert tasks[: len(own)] == own[: len(tasks)]
    assert set(tasks) <= set(found.source.ids("train"))


def test_a_source_with_too_few_tasks_says_so() -> None:
    found = practice(steps=7, seed=0, tasks=30)
    assert control_tasks(found, 1.0)
    with pytest.raises(ValueError, match="are needed for a single epoch"):
        control_tasks(found, 2.0)
