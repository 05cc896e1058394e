"""Reference 1, nop 0, every cheat 0, nothing leaks: on sampled tasks of every level, in real sandboxes (promises 9, 10)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from etude.sandbox.protocol import SandboxPool
from etude.tasks.audit import check, leaks
from etude.tasks.cheats.exercise import CHEATS, nop
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.registry import grade
from etude.tasks.solved import reference_files
from etude.tasks.task import SPLITS


async def _sound(source: ExerciseSource, level: str, pool: SandboxPool, count: int) -> None:
    for split in SPLITS:
        for task_id in source.ids(split, level=level)[: count // 3]:  # type: ignore[arg-type]
            found = await check(source.task(task_id), pool)
            assert set(found.cheats) == set(CHEATS)
            assert found.sound, found.complaint()


@pytest.mark.parametrize("level", LEVELS)
async def test_reference_scores_one_and_nothing_else_does(
    source: ExerciseSource, pool: SandboxPool, level: str
) -> None:
    await _sound(source, level, pool, 6)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", LEVELS)
async def test_64_tasks_of_each_level_are_sound(source: ExerciseSource, pool: SandboxPool, level: str) -> None:
    await _sound(source, level, pool, 64)


@pytest.mark.parametrize("level", LEVELS)
def test_no_task_leaks(source: ExerciseSource, level: str) -> None:
    for split in SPLITS:
        for task_id in source.ids(split, level=level)[:150]:
            assert leaks(source.task(task_id)) == [], task_id


def test_the_leak_audit_finds_what_is_planted(source: ExerciseSource) -> None:
    task = source.task(source.ids("train", level="one-bug")[0])
    path, text = next(iter(task.solution.items()))
    call = task.hidden["calls"][0]
    spelled = ", ".join([repr(call["want"]), *map(repr, call["args"])])
    line = f'check("{call["module"]} {call["function"]}", {spelled})\n'
    for planted in (
        {"notes/copy.txt": "# kept\n" + text},
        {"__pycache__/core.cpython-311.pyc": ""},
        {".git/objects/pack/x": ""},
        {"fix.patch": ""},
        {"check.py": task.files["check.py"] + line},
        {path: text},
    ):
        assert leaks(replace(task, files={**task.files, **planted})), planted
    tests = source.task(source.ids("train", level="write-test")[0])
    assert leaks(replace(tests, files={**tests.files, "old.py": tests.hidden["mutants"][0]}))


async def test_grading_is_cheap(source: ExerciseSource, pool: SandboxPool) -> None:
    tasks = [source.task(task_id) for task_id in source.ids("train", level="one-bug")[:40]]
    await grade(tasks[0], reference_files(tasks[0]), pool)
    wall, cpu = time.perf_counter(), time.process_time()
    for task in tasks:
        assert (await grade(task, reference_files(task), pool)).passed
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"one grading: {1000 * wall / len(tasks):.1f} ms wall, {1000 * cpu / len(tasks):.1f} ms CPU of this process")
    assert cpu / len(tasks) < 0.010


async def test_a_verdict_names_every_hidden_call(source: ExerciseSource, pool: SandboxPool) -> None:
    task = source.task(source.ids("train", level="one-bug")[1])
    good, bad = await grade(task, reference_files(task), pool), await grade(task, nop(task), pool)
    assert set(good.tests) == set(bad.tests) == {call["id"] for call in task.hidden["calls"]}
    assert all(good.tests.values())
    assert not all(bad.tests.values())
    assert bad.reason
