"""A run that stops while rollouts are grading hands what their agents left to the graders when it goes on, and asks no agent for it again
(promises 6, 8). Real sandboxes, engine and trainer; the stop is a cancellation here, a kill in `tests/faults/test_faults_ended.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from run_in_threads import Threads, a_run, check_whole

from etude.rl.run_context import RunContext
from etude.rl.steps import read
from etude.rl.store import GroupStore
from etude.rl.training_run import run_training
from etude.rollout import attempt as attempting
from etude.sandbox.protocol import Machines
from etude.tasks.registry import GRADERS
from etude.tasks.task import Task, Verdict


class Slow:
    """The real graders, which don't come to an end while `wait` is set."""

    def __init__(self) -> None:
        self.wait = True

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        while self.wait:
            await asyncio.sleep(0.02)
        return await GRADERS[task.grader].grade(task, files, pool)


@pytest.fixture
def asked(monkeypatch) -> Iterator[list[str]]:
    """Sessions for which an agent was begun, by name."""
    names: list[str] = []
    real = attempting._run_agent

    async def begun(task, setup, policy, sandbox, name, *rest):
        names.append(name)
        return await real(task, setup, policy, sandbox, name, *rest)

    monkeypatch.setattr(attempting, "_run_agent", begun)
    yield names


def slowly(checkpoint: Path, folder: Path, grader: Slow, **changes: object) -> RunContext:
    run = a_run(checkpoint, folder, **changes)
    return replace(run, graders=dict.fromkeys(GRADERS, grader))


def until_all_grade(run: RunContext, grader: Slow, names: list[str]) -> None:
    """A life that is stopped when every slot's agent is done and none has a verdict."""

    async def life() -> None:
        places = Threads(run)
        driving = asyncio.create_task(run_training(run, places))
        try:
            folder = run.folder / "groups" / "ended"
            while not driving.done() and (
                len(names) < run.settings.slots or len(list(folder.glob("*.zst"))) < run.settings.slots
            ):
                await asyncio.sleep(0.02)
            if driving.done():
                await driving
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
        finally:
            for engine in places.engines:
                engine.kill()

    run.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(life())
    grader.wait = False


def to_the_end(run: RunContext) -> dict:
    places = Threads(run)
    try:
        return asyncio.run(run_training(run, places))
    finally:
        for engine in places.engines:
            engine.kill()


def test_what_was_grading_at_the_stop_is_graded_and_no_agent_is_asked_again(checkpoint, tmp_path, asked):
    grader = Slow()
    run = slowly(checkpoint, tmp_path, grader)
    until_all_grade(run, grader, asked)
    before = set(asked)
    held = GroupStore(tmp_path / "groups").unfinished_groups()
    assert sum(len(one.ended) for one in held.values()) == run.settings.slots == len(before)
    asked.clear()
    summary = to_the_end(run)
    check_whole(run)
    assert not before & set(asked), "an agent was asked again for a rollout that had ended"
    assert summary["counts"]["handed_over"] == len(before) and summary["counts"]["ended_too_large"] == 0
    assert not list((tmp_path / "groups" / "ended").iterdir())
    store = GroupStore(tmp_path / "groups")
    rollouts = [rollout for group in store.groups() for rollout in store.load(group)]
    assert {one.id for one in rollouts if one.info.get("handed_over")} == before


def test_of_what_is_damaged_the_agent_is_asked_again_and_the_run_is_whole(checkpoint, tmp_path, asked):
    grader = Slow()
    run = slowly(checkpoint, tmp_path, grader)
    until_all_grade(run, grader, asked)
    paths = sorted((tmp_path / "groups" / "ended").iterdir())
    for path in paths[:2]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    again = {tuple(map(int, path.stem.split("-")[:2])) for path in paths[:2]}
    asked.clear()
    summary = to_the_end(run)
    check_whole(run)
    places = {tuple(map(int, name.rpartition("#")[2].split("."))) for name in asked}
    assert again <= places and summary["counts"]["handed_over"] == len(paths) - 2


def test_what_can_not_be_kept_is_counted(checkpoint, tmp_path):
    grader = Slow()
    grader.wait = False
    run = slowly(checkpoint, tmp_path, grader, steps=1, keep_ended_bytes=64)
    summary = to_the_end(run)
    assert summary["counts"]["ended_too_large"] == summary["counts"]["rollouts"] == 6
    (step,) = read(tmp_path / "steps.jsonl")
    assert step.values["ended_too_large"] == 6 and step.values["handed_over"] == 0
