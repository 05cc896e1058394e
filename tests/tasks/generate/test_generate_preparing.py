"""A folder of tasks made elsewhere: what its environments start from is made again by its own recipes, or it is said why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etude.cli.tasks.prepare import prepare as prepare_verb
from etude.sandbox.errors import UserError
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.content import file_bytes
from etude.tasks.environment.environment import KEY, TestPlan
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.install import preparing
from etude.tasks.generate.install.preparing import Unprepared, catalogue_project
from etude.tasks.generate.install.recipe import InstallRecipe
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task

FILES = {"sums.py": b"total = 3\n"}
PROJECT = Fetched(CatalogueProject("sums", "sdist", "1.0"), FILES, "sdist py-sums 1.0 sha256:00")


def recipe(step: str = "mkdir -p /tmp/deps && echo built > /tmp/deps/it") -> InstallRecipe:
    return InstallRecipe("sums", "1.0", "python", PROJECT.digest, (step,), TestPlan(files=("test_sums.py",)))


def a_folder(root: Path, made: InstallRecipe, kept: str, origin: str = PROJECT.origin) -> TaskFolder:
    installed = InstalledProject(made.environment, PROJECT.texts(), Baseline(frozenset()), origin)
    folder = TaskFolder(root, make=True)
    metadata = {KEY: made.environment.to_record(), "project": installed.name}
    folder.add(
        Task("t", "debugging", "made", "mend it", dict(installed.files), (), "commands", metadata=metadata),
        installed,
        kept,
    )
    return folder


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "fetch", lambda wanted, cache: PROJECT)


async def test_a_missing_snapshot_is_made_by_the_folders_own_recipe_and_is_there_from_then_on(
    tmp_path: Path, pool: SandboxPool, released: None
) -> None:
    made = recipe(f"mkdir -p /tmp/deps && echo {tmp_path.name} > /tmp/deps/it")
    folder = a_folder(tmp_path / "tasks", made, made.to_toml())
    with pytest.raises(UserError, match="`etude tasks prepare DIR` makes what"):
        await open_workspace(folder.task("t"), pool, SandboxSpec())
    assert await preparing.prepare(folder.trees, "sums-1.0", pool, tmp_path) == "made"
    assert await preparing.prepare(folder.trees, "sums-1.0", pool, tmp_path) == "ready"
    box = await open_workspace(folder.task("t"), pool, SandboxSpec())
    assert (await box.run(["cat", "/tmp/deps/it"])).out.decode().strip() == tmp_path.name
    await box.kill()


@pytest.mark.parametrize("origin", ["git 0a1b2c", "folder sums"])
async def test_what_came_from_git_or_a_folder_is_made_from_the_tree_that_the_tasks_keep(
    tmp_path: Path, pool: SandboxPool, origin: str
) -> None:
    files = {"sums.py": b"total = 3\n", "run.sh": file_bytes(b"#!/bin/sh\n", "100755"), "data.bin": b"\xff\x00"}
    whole = Fetched(CatalogueProject("sums", "sdist", "1.0"), files, origin)
    made = replace(recipe(f"test -x run.sh && mkdir -p /tmp/deps/{tmp_path.name}"), tree=whole.digest)
    folder = TaskFolder(tmp_path / "tasks", make=True)
    metadata = {KEY: made.environment.to_record(), "project": "sums-1.0"}
    installed = InstalledProject(made.environment, whole.tree(), Baseline(frozenset()), origin)
    folder.add(
        Task("t", "debugging", "made", "mend it", whole.tree(), (), "commands", metadata=metadata),
        installed,
        made.to_toml(),
    )
    again = TaskFolder(folder.root)
    assert await preparing.prepare(again.trees, "sums-1.0", pool, tmp_path) == "made"


async def test_what_can_not_be_made_says_why(tmp_path: Path, pool: SandboxPool, released: None) -> None:
    made = recipe(f"exit 3 # {tmp_path.name}")
    other = InstallRecipe(**{**vars(made), "tree": "another"})
    for name, found, kept, why in (
        ("none", made, "", "keeps no recipe of it; go on with its making"),
        ("fails", made, made.to_toml(), "its recipe can't be replayed"),
        ("tree", other, other.to_toml(), "its recipe starts from another"),
        ("strange", made, other.to_toml(), "make its tasks again"),
    ):
        folder = a_folder(tmp_path / name, found, kept)
        with pytest.raises(Unprepared, match=why):
            await preparing.prepare(folder.trees, "sums-1.0", pool, tmp_path)


def test_where_a_project_came_from_is_read_back_and_a_local_one_is_reported() -> None:
    found = catalogue_project("npm @scope/sums 1.0 sha512:00", recipe())
    assert (found.name, found.kind, found.version, found.in_registry) == ("sums", "npm", "1.0", "@scope/sums")
    for origin in ("git 0a1b2c", "folder sums", ""):
        with pytest.raises(Unprepared, match="which no registry has"):
            catalogue_project(origin, recipe())


def test_the_verb_fails_and_lists_what_is_lacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_folder(tmp_path, recipe(f"true # {tmp_path}"), "")
    answer = prepare_verb(folder.root)
    assert answer.code == 1 and "no recipe" in answer.document["lacking"]["sums-1.0"]


def test_a_recipe_that_was_lacking_is_kept_when_it_comes(tmp_path: Path) -> None:
    made = recipe()
    assert a_folder(tmp_path, made, "").trees.recipe("sums-1.0") == ""
    assert a_folder(tmp_path, made, made.to_toml()).trees.recipe("sums-1.0") == made.to_toml()
