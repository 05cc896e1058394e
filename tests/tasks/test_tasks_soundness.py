"""Reference 1, nop 0, every cheat 0, nothing leaks: on sampled tasks of every level, in real sandboxes (promises 9, 10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec
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


@pytest.mark.sample(4)
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


@pytest.mark.sample(4)
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


class CountingPool:
    """Hands on to a pool, and counts the sandboxes and what is asked of them."""

    def __init__(self, pool: SandboxPool) -> None:
        self.pool, self.calls = pool, Counter[str]()

    async def create(self, spec: SandboxSpec) -> Sandbox:
        self.calls["create"] += 1
        box = await self.pool.create(spec)
        for name in ("run", "write", "read", "remove", "put_tar", "get_tar", "snapshot"):
            setattr(box, name, self._counted(name, getattr(box, name)))
        return box

    def _counted(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*words: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return await call(*words, **options)

        return counted


async def test_a_grading_takes_one_sandbox_and_one_command(source: ExerciseSource, pool: SandboxPool) -> None:
    for task_id in source.ids("train", level="one-bug")[:3]:
        task, counting = source.task(task_id), CountingPool(pool)
        assert (await grade(task, reference_files(task), cast(SandboxPool, counting))).passed
        assert counting.calls["create"] == 1 and sum(counting.calls.values()) <= 3, counting.calls


async def test_a_verdict_names_every_hidden_call(source: ExerciseSource, pool: SandboxPool) -> None:
    task = source.task(source.ids("train", level="one-bug")[1])
    good, bad = await grade(task, reference_files(task), pool), await grade(task, nop(task), pool)
    assert set(good.tests) == set(bad.tests) == {call["id"] for call in task.hidden["calls"]}
    assert all(good.tests.values())
    assert not all(bad.tests.values())
    assert bad.reason
