"""What an agent leaves of a real project: files that the task took out and that stand there again exactly as they were are its work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.content import EXECUTABLE, LINK, FileText, mode_of
from etude.tasks.environment.environment import KEY, Environment
from etude.tasks.environment.workspace import OVERLAY, open_workspace, overlay, read_workspace
from etude.tasks.task import Task

PROJECT = {
    "keep.py": "x = 1\n",
    "pkg/__init__.py": "",
    "pkg/feature.py": "def f():\n    return 1\n",
    "tests/test_f.py": "f\n",
}
GONE = ("pkg/__init__.py", "pkg/feature.py", "tests/test_f.py")


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened_pool = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened_pool
    await opened_pool.close()


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ("true", {}),
        ("mkdir -p pkg; : > pkg/__init__.py", {"pkg/__init__.py": ""}),
        (
            "mkdir -p pkg; printf 'def f():\\n    return 1\\n' > pkg/feature.py",
            {"pkg/feature.py": PROJECT["pkg/feature.py"]},
        ),
        ("mkdir -p tests; echo other > tests/test_f.py", {"tests/test_f.py": "other\n"}),
        ("rm -rf pkg tests; mkdir pkg; : > pkg/__init__.py", {"pkg/__init__.py": ""}),
        ("mkdir -p pkg; : > pkg/__init__.py; rm -rf pkg", {}),
        (
            "mkdir -p tests; ln -s ../keep.py tests/test_f.py",
            {"tests/test_f.py": "../keep.py"},
        ),  # a link, by its target
    ],
)
async def test_what_stands_again_as_it_was_counts_as_written(
    pool: SandboxPool, done: str, expected: dict[str, str]
) -> None:
    box = await pool.create(SandboxSpec(files={path: text.encode() for path, text in PROJECT.items()}))
    await box.snapshot("left-1")
    await box.kill()
    metadata = {
        KEY: Environment("left", "1", snapshot="left-1").to_record(),
        OVERLAY: {"changed": [], "removed": list(GONE)},
    }
    task = Task("t", "features", "made", "", {"keep.py": "x = 1\n"}, (), "commands", metadata=metadata)
    agent = await open_workspace(task, pool, SandboxSpec(), history=True)
    await agent.run(["sh", "-c", done])
    found = await read_workspace(agent, task)
    await agent.kill()
    assert {path: data.decode() for path, data in found.items()} == {"keep.py": "x = 1\n", **expected}


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ("true", {"run.sh": b"bad\n", "lnk": b"keep.py"}),
        ("printf 'good\\n' > run.sh", {"run.sh": b"good\n", "lnk": b"keep.py"}),
        ("rm run.sh lnk", {}),
        ("ln -sf run.sh lnk", {"run.sh": b"bad\n", "lnk": b"run.sh"}),
    ],
)
async def test_a_program_that_is_again_as_the_project_has_it_is_the_agents_work(
    pool: SandboxPool, done: str, expected: dict[str, bytes]
) -> None:
    project = {"keep.py": "x\n", "run.sh": FileText("good\n", EXECUTABLE)}
    box = await open_workspace(Task("p", "c", "l", "", project, (), "commands"), pool, SandboxSpec())
    await box.snapshot("programs-1")  # type: ignore[attr-defined]
    await box.kill()
    files = {"keep.py": "x\n", "run.sh": FileText("bad\n", EXECUTABLE), "lnk": FileText("keep.py", LINK)}
    metadata = {KEY: Environment("programs", "1", snapshot="programs-1").to_record(), OVERLAY: overlay(project, files)}
    task = Task("t", "features", "made", "", files, (), "commands", metadata=metadata)
    agent = await open_workspace(task, pool, SandboxSpec(), history=True)
    assert (await agent.run(["sh", "-c", done])).rc == 0
    found = await read_workspace(agent, task)
    await agent.kill()
    assert {path: bytes(data) for path, data in found.items()} == {"keep.py": b"x\n", **expected}
    assert [mode_of(data) for path, data in found.items() if path == "run.sh"] == [EXECUTABLE] * ("run.sh" in expected)
