"""A task whose agent would find the answer beside its workspace is none, however well its grader holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import KEY, Environment
from etude.tasks.generate.generator import Baseline, Installed
from etude.tasks.generate.making.searching import searching
from etude.tasks.proof import LeftOut
from etude.tasks.task import Task

LINES = [f"    resulting_value_{n} = combine_of_parts(resulting_value_{n - 1}, {n})" for n in range(1, 12)]
SOLUTION = "\n".join(["def whole_of_parts(resulting_value_0):", *LINES, "    return resulting_value_11", ""])
FILES = {"parts.py": "def other():\n    return 1\n"}


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()


async def _made(pool: SandboxPool, name: str, deps: dict[str, str]) -> tuple[Task, Installed]:
    box = await pool.create(SandboxSpec(files={path: text.encode() for path, text in FILES.items()}))
    for path, text in deps.items():
        await box.write(path, text.encode())
    await box.snapshot(name)
    await box.kill()
    environment = Environment("parts", "1", snapshot=name)
    task = Task(
        "t",
        "features",
        "small",
        "",
        FILES,
        (),
        "commands",
        solution={"parts.py": SOLUTION},
        metadata={KEY: environment.told()},
    )
    return task, Installed(environment, FILES, Baseline(frozenset()))


async def _itself(task: Task, project: Installed) -> Task:
    return task


async def test_a_dependency_that_carries_the_answer_is_found_and_an_honest_one_is_not(pool: SandboxPool) -> None:
    honest = await _made(pool, "honest", {"/tmp/deps/other.py": "nothing_of_it_here = 1\n"})
    assert await searching(_itself, pool)(*honest) == honest[0]
    telling = await _made(pool, "telling", {"/tmp/deps/bundle.js": SOLUTION})
    with pytest.raises(LeftOut, match="its sandbox tells: /tmp/deps/bundle.js"):
        await searching(_itself, pool)(*telling)
