"""A tree's workspaces are found by manifests and top-level packages, and every task says which of them it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.core.sources.project import SourceOffline
from etude.tasks.environment.environment import Environment
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.prompts.facts import KEY, Facts
from etude.tasks.generate.run.finalization import finalize_task
from etude.tasks.generate.sources.fetched import fetch
from etude.tasks.generate.sources.projects import read_projects
from etude.tasks.generate.sources.workspaces import concerned_workspaces, workspace_of, workspaces
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Task

LISTED = Path(__file__).parents[3] / "recipes" / "monorepos.toml"
MONOREPO = {
    "package.json": "{}",
    "packages/core/package.json": "{}",
    "packages/core/index.js": "",
    "packages/cli/package.json": "{}",
    "packages/cli/test/fixtures/x/package.json": "{}",
    "examples/one/package.json": "{}",
}
PAIR = {"pyproject.toml": "", "src/one/__init__.py": "", "src/one/inner/__init__.py": "", "src/two/__init__.py": ""}


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        (MONOREPO, ["packages/cli", "packages/core"]),
        (PAIR, ["src/one", "src/two"]),
        (
            {"one_core/pyproject.toml": "", "one_core/one_core/__init__.py": "", "one/__init__.py": ""},
            ["one_core", "one"],
        ),
        ({"pyproject.toml": "", "one/__init__.py": "", "tests/__init__.py": "", "docs/setup.py": ""}, []),
        ({"index.js": "", "package.json": ""}, []),
        (
            {"one/__init__.py": "", "one/commands/__init__.py": "", "one/commands/setup.py": "", "one/x/setup.py": ""},
            ["one/x", "one"],
        ),
        ({"x/_vendor/y/__init__.py": "", "x/__init__.py": "", "x/_vendor/y/pyproject.toml": ""}, []),
    ],
)
def test_workspaces_are_folders_with_a_manifest_or_packages_side_by_side(files: dict[str, str], folders: list[str]):
    assert workspaces(files) == folders


def test_a_path_lies_in_the_innermost_workspace_or_in_none():
    assert workspace_of("a/b/c.py", ["a", "a/b", "a/bc"]) == "a/b"
    assert workspace_of("a.py", ["a"]) is None
    assert concerned_workspaces(["a/x.py", "b/y.py", "README.md"], ["a", "b", "c"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("solution", "said", "named"),
    [
        ({"src/one/m.py": "x = 2\n"}, ["src/one"], "`src/one`, one of the 2 workspaces: `m`"),
        ({"src/one/m.py": "x = 2\n", "src/two/m.py": "x = 2\n"}, ["src/one", "src/two"], "`m`"),
        ({"setup.py": "x = 2\n"}, None, "`m`"),
    ],
)
async def test_a_task_says_which_workspace_is_meant(solution: dict[str, str], said: list[str] | None, named: str):
    facts = Facts("make it two", place="`m`")
    task = Task(
        id="features/pair/x", category="features", level="x", instruction="", files=PAIR, test_command=(), grader="commands",
        hidden={}, solution=solution, metadata={KEY: facts.to_record()}, split="train",
    )  # fmt: skip
    done = await finalize_task(task, InstalledProject(Environment("pair", "1"), PAIR, Baseline(frozenset()), "test"))
    assert done.metadata.get("workspaces") == said
    assert f"It concerns {named.strip('`') if named == '`m`' else named}." in done.metadata["prompts"]["full"]


def test_every_listed_monorepo_says_that_it_is_one_and_what_is_in_it():
    assert all(one.workspaces and one.note for one in read_projects(LISTED))


@pytest.mark.nightly
def test_every_listed_project_has_several_workspaces():
    for one in read_projects(LISTED):
        try:
            found = workspaces(fetch(one, default_cache()).texts())
        except SourceOffline as error:
            pytest.skip(str(error))
        assert len(found) > 1, one.id
