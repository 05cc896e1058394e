"""The control's tasks: RL's own, and beyond them others."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.events.log import EventLog
from etude.core.trace.segment import Rollout
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run import practice as run_practice
from etude.pipeline.run.practice import TrainingTasks
from etude.pipeline.run.stage import Context, StageError
from etude.pipeline.run.stages import attempts
from etude.pipeline.run.stages.attempts import control_tasks
from etude.rl.schedule import task_list
from etude.rl.settings import RlSettings
from etude.rl.store import GroupStore
from etude.rollout.attempt import Attempt
from etude.rollout.retry import InfraFault
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.task import Verdict


def practice(steps: int, seed: int, tasks: int = 400) -> TrainingTasks:
    source = ExerciseSource(ExerciseSettings(train_tasks=tasks))
    return TrainingTasks(source, RlSettings(steps=steps, groups_per_step=4, seed=seed))


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


def sampled_with(
    monkeypatch, tmp_path, bad: set[int], most: int, made: list[str] | None = None, slots: int = 32
) -> tuple[GroupStore, str]:
    """The stage's sampling over six tasks of exercises; attempts at the tasks of these places meet faults."""
    recipe = Recipe.model_validate({"rl": {"group_size": 2, "max_unreachable": most, "slots": slots}})
    made = [] if made is None else made
    context = Context(recipe, tmp_path, "attempts", EventLog(tmp_path / "events.jsonl"))
    store, tasks = GroupStore(tmp_path / "groups"), control_tasks(run_practice.practice(recipe), 6 / (40 * 16))

    async def attempt(task, setup, *, name, seed, group):
        if group in bad:
            raise InfraFault(f"{name}: no image")
        made.append(name)
        rollout = Rollout(name, task.id, group, [], {"outcome": 1.0})
        return Attempt(rollout, Verdict(1.0), None, {}, {})  # type: ignore[arg-type]

    monkeypatch.setattr("etude.rollout.batch.attempt", attempt)
    asyncio.run(attempts.GroupSampler(context, tasks, store, None).run())  # type: ignore[arg-type]
    return store, (tmp_path / "events.jsonl").read_text()


def test_a_task_that_can_not_be_attempted_is_left_out_of_the_control_and_named(monkeypatch, tmp_path):
    store, notes = sampled_with(monkeypatch, tmp_path, {2}, 1)
    assert (
        store.groups() == [0, 1, 3, 4, 5]
        and "left out, for their attempts met infra faults" in notes
        and "no image" in notes
    )


def test_many_such_tasks_stop_the_control_by_the_setting(monkeypatch, tmp_path):
    with pytest.raises(StageError, match="of 12 attempts, at 2 tasks, met infra faults, and rl.max_unreachable is 1"):
        sampled_with(monkeypatch, tmp_path, {2, 4}, 1)


def test_attempts_at_groups_that_are_not_whole_outlive_a_stop(monkeypatch, tmp_path):
    def broken(store, group, rollouts):
        raise KeyboardInterrupt

    made: list[str] = []
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(GroupStore, "save", broken)
        sampled_with(patch, tmp_path, set(), 1, made, slots=1)
    (first,) = made[:-1]
    store, _ = sampled_with(monkeypatch, tmp_path, set(), 1, made)
    assert made.count(first) == 1 and len(made) == 12 + 1
    assert store.groups() == list(range(6)) and store.load(0)[0].id == first and not store.unfinished_groups()


def test_a_kept_attempt_of_another_task_is_made_again(monkeypatch, tmp_path):
    store = GroupStore(tmp_path / "groups")
    store.keep(0, 0, 1, Rollout("another#0.1", "another", 0, [], {"outcome": 0.0}))
    made: list[str] = []
    store, _ = sampled_with(monkeypatch, tmp_path, set(), 1, made)
    assert len(made) == 12 and "another" not in {rollout.task_id for rollout in store.load(0)}


def test_no_attempt_starts_once_too_many_tasks_can_not_be_attempted(monkeypatch, tmp_path):
    made: list[str] = []
    with pytest.raises(StageError, match="3 of 12 attempts, at 2 tasks"):
        sampled_with(monkeypatch, tmp_path, {1, 2, 3, 4, 5}, 1, made, slots=1)
    assert len(made) == 2 and (tmp_path / "events.jsonl").read_text().count("no attempt: ") == 3
