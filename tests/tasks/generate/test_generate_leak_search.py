"""A task is rejected if its agent could find the answer next to its workspace, however sound its grader is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import KEY, Environment
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.run.finalization import with_leak_search
from etude.tasks.task import Task

LINES = [f"    resulting_value_{n} = combine_of_parts(resulting_value_{n - 1}, {n})" for n in range(1, 12)]
SOLUTION = "\n".join(["def whole_of_parts(resulting_value_0):", *LINES, "    return resulting_value_11", ""])
FILES = {"parts.py": "def other():\n    return 1\n"}


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()


async def _made(pool: SandboxPool, name: str, deps: dict[str, str]) -> tuple[Task, InstalledProject]:
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
        metadata={KEY: environment.to_record()},
    )
    return task, InstalledProject(environment, FILES, Baseline(frozenset()))


async def _itself(task: Task, project: InstalledProject) -> Task:
    return task


async def test_a_dependency_with_the_answer_is_rejected_and_an_honest_one_is_not(pool: SandboxPool) -> None:
    honest = await _made(pool, "honest", {"/tmp/deps/other.py": "nothing_of_it_here = 1\n"})
    assert await with_leak_search(_itself, pool)(*honest) == honest[0]
    telling = await _made(pool, "telling", {"/tmp/deps/bundle.js": SOLUTION})
    with pytest.raises(CandidateRejected, match="its sandbox tells: /tmp/deps/bundle.js"):
        await with_leak_search(_itself, pool)(*telling)
