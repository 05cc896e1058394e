"""Making a suite goes on where it stopped, takes the same tasks whatever finishes first, and says why others are none."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from etude.cli.tasks.own import own_exercises
from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.suites.from_tasks import Choice, candidates
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.collecting import CollectionOrder, source_of, suite_of
from etude.sandbox.errors import SandboxDied, Unsupported
from etude.sandbox.fake.pool import FakePool
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.harbor import write_task
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.opened import open_tasks
from etude.tasks.task import Task, Verdict
from etude.tasks.validation.suite_build import Candidate, SuiteBuild, SuiteDecision, make_tasks


def task(name: str) -> Task:
    return Task(name, "debugging", "one", f"do {name}", {"a.py": "x\n"}, (), "outputs", {"calls": []}, {"a.py": "y\n"})


def candidate(name: str, begun: list[str], reason: str = "", wait: random.Random | None = None) -> Candidate:
    async def build() -> Task:
        begun.append(name)
        await asyncio.sleep(wait.random() / 200 if wait else 0)
        if reason:
            raise CandidateRejected(reason)
        return task(name)

    return Candidate(name, build)


@pytest.mark.parametrize("seed", range(5))
async def test_the_first_sound_ones_are_taken_whoever_finishes_first(tmp_path: Path, seed: int):
    begun: list[str] = []
    rng = random.Random(seed)
    found = [candidate(f"t{n}", begun, "bad" if n in (1, 2) else "", rng) for n in range(9)]
    tasks, decided = await make_tasks(found, SuiteBuild(tmp_path / "s", {}), count=4, concurrency=3)
    assert [t.id for t in tasks] == ["t0", "t3", "t4", "t5"] and sorted(begun) == [f"t{n}" for n in range(6)]
    assert [d.id for d in decided if d.reason] == ["t1", "t2"]


async def test_a_making_that_was_killed_goes_on_and_asks_nothing_twice(tmp_path: Path):
    begun: list[str] = []
    found = [candidate(f"t{n}", begun, "bad" if n == 0 else "") for n in range(3)]

    async def dies() -> Task:
        raise SandboxDied("the machine is gone")

    with pytest.raises(SandboxDied):
        await make_tasks([*found[:2], Candidate("t2", dies)], SuiteBuild(tmp_path / "s", {"a": 1}), concurrency=1)
    log = tmp_path / ".s.making" / "made.jsonl"
    log.write_bytes(log.read_bytes() + b'{"id": "t2", "rea')  # a line torn by the kill
    workshop = SuiteBuild(tmp_path / "s", {"a": 1})
    tasks, decided = await make_tasks(found, workshop, concurrency=1)
    assert begun == ["t0", "t1", "t2"] and [t.id for t in tasks] == ["t1", "t2"]
    assert decided == [SuiteDecision("t0", "bad"), SuiteDecision("t1"), SuiteDecision("t2")]
    assert tasks[0] == task("t1")
    with pytest.raises(TaskError, match="unfinished suite with other inputs"):
        SuiteBuild(tmp_path / "s", {"a": 2})


async def test_an_environment_that_can_not_be_had_is_a_reason_not_the_end(tmp_path: Path):
    async def needs() -> Task:
        raise Unsupported("it needs an image")

    tasks, decided = await make_tasks([Candidate("t", needs)], SuiteBuild(tmp_path / "s", {}))
    assert tasks == [] and decided == [SuiteDecision("t", "it needs an image")]


class Scores:
    """A grader that gives the reference the configured score, and 0 to all else."""

    def __init__(self, reference: float) -> None:
        self.reference = reference

    async def grade(self, task: Task, files: dict[str, bytes], pool) -> Verdict:
        done = all(files.get(path) == text.encode() for path, text in task.solution.items())
        return Verdict(self.reference if done else 0.0)


async def test_a_task_from_a_folder_is_checked_before_it_is_taken(tmp_path: Path):
    source = ExerciseSource(Recipe().exercises)
    tasks = [source.task(task_id) for task_id in source.ids("heldout")[:6]]
    for number, one in enumerate(tasks):
        write_task(one, tmp_path / "from" / str(number))
    found = open_tasks(tmp_path / "from")
    assert {task_id: found.task(task_id) for task_id in found.ids()} == {one.id: one for one in tasks}
    by_id = {one.id: one for one in tasks}
    names = {one.grader for one in tasks}
    pool = FakePool()

    async def made(score: float, folder: str, choice: Choice):
        graders = dict.fromkeys(names, Scores(score))
        found = candidates(list(by_id), by_id.__getitem__, choice, 0, pool, graders)
        return await make_tasks(found, SuiteBuild(tmp_path / folder, {}))

    level = Choice(level=tasks[0].level)
    sound, _ = await made(1.0, "good", level)
    assert {one.id for one in sound} == {one.id for one in tasks if one.level == tasks[0].level}
    none, decided = await made(0.5, "bad", Choice())
    assert none == [] and all("reference 0.5" in d.reason for d in decided) and len(decided) == 6
    assert (await made(1.0, "other", Choice(category="review")))[1] == []
    stranger = replace(tasks[0], grader="unheard-of")
    found = candidates([stranger.id], lambda _: stranger, Choice(), 0, pool, {})
    [decision] = (await make_tasks(found, SuiteBuild(tmp_path / "strange", {})))[1]
    assert "unheard-of" in decision.reason


async def test_what_is_trained_on_makes_no_suite_unless_it_is_asked_for(tmp_path: Path):
    source = ExerciseSource(Recipe().exercises)
    task = source.task(source.ids("train")[0])

    async def made(choice: Choice, folder: str):
        found = candidates([task.id], lambda _: task, choice, 0, FakePool(), {task.grader: Scores(1.0)})
        return await make_tasks(found, SuiteBuild(tmp_path / folder, {}))

    none, [decision] = await made(Choice(), "none")
    assert none == [] and "of the training split" in decision.reason and "--split train" in decision.reason
    assert [one.id for one in (await made(Choice(split="train"), "asked"))[0]] == [task.id]


def test_a_source_that_is_none_is_named(tmp_path: Path):
    with pytest.raises(TaskError, match="there is no such folder"):
        source_of("exercise", Recipe(), Choice())
    with pytest.raises(TaskError, match="nor a task.toml"):
        source_of(str(tmp_path), Recipe(), Choice())
    with pytest.raises(TaskError, match="no exercise level"):
        source_of("exercises", Recipe(), Choice(level="absent"))
    assert len(source_of("real", Recipe(), Choice()).ids) >= 24


def test_sessions_are_collected_at_the_tasks_of_one_split_of_a_folder(tmp_path: Path):
    own_exercises(tmp_path, train=3, validation=0, heldout=2, recipe="laptop")
    folder, recipe = TaskFolder(tmp_path), Recipe()
    assert suite_of(CollectionOrder("expert", str(tmp_path), tmp_path / "out"), recipe).ids == folder.ids("train")
    held = Choice(split="heldout")
    assert suite_of(CollectionOrder("expert", str(tmp_path), tmp_path / "out", choice=held), recipe).ids == folder.ids(
        "heldout"
    )
    assert len(source_of(str(tmp_path), recipe, Choice()).ids) == 5
    with pytest.raises(
        SuiteError,
        match=r"holds no task of split 'validation' \(2 of heldout, 3 of train\); choose another with --set split=",
    ):
        source_of(str(tmp_path), recipe, Choice(split="validation"))
