"""Every task of a run carries its project's split, also after a kill, with other shares, and next to imported tasks."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from etude.tasks.environment.environment import Environment
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.protocols import InstallResult, ProjectDiscarded
from etude.tasks.generate.run.split_assignment import SplitAssigner
from etude.tasks.splits import Shares
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.overlap import overlap, statement
from etude.tasks.task import SPLITS, Task

ALL, NONE = Shares(0.0, 1.0), Shares(0.0, 0.0)


def code(seed: int) -> dict[str, str]:
    draw = random.Random(seed)
    return {"a.py": "".join(f"x{draw.randrange(10**6)} = f{draw.randrange(10**6)}(1)\n" for _ in range(300))}


def project(name: str, seed: int, version: str = "1.0") -> InstalledProject:
    return InstalledProject(Environment(name, version), code(seed), Baseline(frozenset()))


def task(installed: InstalledProject, number: int = 0) -> Task:
    metadata = {"environment": installed.environment.to_record(), "project": installed.name}
    return Task(
        f"{installed.name}-{number}", "debugging", "l", "do", dict(installed.files), (), "commands", metadata=metadata
    )


async def as_it_is(task: Task, project: InstalledProject) -> Task:
    return task


def made(folder: TaskFolder, shares: Shares, *projects: InstalledProject) -> dict[str, str]:
    async def run() -> None:
        finish = SplitAssigner(folder, shares).wrap_finalizer(as_it_is)
        for number, one in enumerate(projects):
            folder.add(await finish(task(one, number), one), one)

    asyncio.run(run())
    return {row.id: row.split for row in folder.rows.values()}


def test_a_project_split_by_module_stays_so_next_to_others(tmp_path: Path) -> None:
    files = {f"pkg/m{number}.py": f"x = {number}\n" for number in range(12)}
    one = InstalledProject(Environment("one", "1.0"), files, Baseline(frozenset()))

    def of(number: int) -> Task:
        changed = {f"pkg/m{number}.py": "x = 0\n"}
        metadata = {"environment": one.environment.to_record(), "project": one.name}
        return Task(
            f"one-{number}", "debugging", "l", "do", dict(files), (), "commands", solution=changed, metadata=metadata
        )

    async def run(folder: TaskFolder, numbers: range, projects: int) -> None:
        finish = SplitAssigner(folder, Shares(0.2, 0.2), projects).wrap_finalizer(as_it_is)
        for number in numbers:
            folder.add(await finish(of(number), one), one)

    asyncio.run(run(TaskFolder(tmp_path, make=True), range(6), 1))
    asyncio.run(run(TaskFolder(tmp_path, make=True), range(6, 12), 50))
    folder = TaskFolder(tmp_path, make=True)
    rows = folder.rows.values()
    assert {row.part for row in rows} == set(files) and {row.split for row in rows} == {*SPLITS}
    found = overlap(folder)
    assert found["heldout"]["shared_projects"] == 1 and sum(row["modules"] for row in found.values()) == 12
    assert "1 projects shared with training" in statement(found)


def test_tasks_carry_the_split_of_their_project_and_keep_it_under_other_shares(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    assert made(folder, ALL, project("one", 1)) == {"one-1.0-0": "heldout"}
    again = TaskFolder(tmp_path, make=True)
    found = made(again, NONE, project("one", 1), project("one", 7, "2.0"), project("copy", 1), project("else", 3))
    assert found == {
        "one-1.0-0": "heldout",
        "one-2.0-1": "heldout",  # another release
        "copy-1.0-2": "heldout",  # the same code under another name
        "else-1.0-3": "train",
    }
    assert TaskFolder(tmp_path).task("copy-1.0-2").split == "heldout"
    assert not again.verify()


def test_a_project_with_held_out_imported_tasks_is_not_trained_on(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    row = {"project": "some/one", "split": "heldout"}
    folder.add(Task("row", "debugging", "l", "do", {}, (), "commands", split="heldout", metadata=row))
    assert made(folder, NONE, project("one", 1))["one-1.0-0"] == "heldout"


def test_a_project_similar_to_projects_of_two_splits_is_discarded_with_the_reason(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    made(folder, ALL, project("one", 1))
    made(folder, NONE, project("two", 2))
    both = InstalledProject(
        Environment("three", "1"), {"a.py": code(1)["a.py"], "b.py": code(2)["a.py"]}, Baseline(frozenset())
    )

    async def install(name: str) -> InstallResult:
        return InstallResult(both)

    async def place() -> None:
        await SplitAssigner(folder, NONE).wrap_installer(install)("three")

    with pytest.raises(ProjectDiscarded, match=r"three is alike to one \(heldout\) and two \(train\)"):
        asyncio.run(place())
