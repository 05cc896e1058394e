"""The list of projects: a wrong one is refused with its row; a dry run of a making says what would be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.agent.git_links.git import git
from etude.cli.answer import Answer
from etude.cli.tasks.make import TaskMakeError, make
from etude.tasks.errors import TaskError
from etude.tasks.generate.install.recipe import read_recipe
from etude.tasks.generate.sources.projects import read_projects

PROJECTS = Path(__file__).parents[3] / "recipes" / "projects.toml"
ROW = "[[projects]]\nname = 'a'\nkind = 'sdist'\nversion = '1'\n"
RECIPE = """
project = "a"
version = "1"
language = "python"
tree = "t"
steps = []
goals = []
deny = []
digest = "d"

[tests]
runner = "pytest"
command = []
files = []
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must hold"),
        (ROW.replace("'a'", "3"), "project 1: name"),
        (ROW + "verison = '2'", "verison"),
        (ROW * 2, "is listed twice"),
        (ROW.replace("sdist", "egg"), "kind 'egg'"),
        (ROW + "language = 'cobol'", "cobol"),
        (ROW + "path = '../a'", "path is for git and folder"),
        ("[[projects", "does not parse"),
        ("x = " + "[" * 100_000, "does not parse: it is nested too deeply"),
        (".".join("a" * 50_000) + " = 1", "does not parse: line 1 has a key of more than 64 parts"),
        ("x = " + "9" * 100_000, "does not parse"),
        (ROW + "a." * 500 + "b = 1", "does not parse: line 5 has a key of more than 64 parts"),
        (ROW + "note = " + "[" * 5000 + "]" * 5000, "does not parse: it is nested too deeply"),
        (ROW.replace("sdist", "git") + "path = 3", "path can't be 3"),
        (ROW + "command = 'pytest'", "command can't be 'pytest'"),
        (ROW + "command = [1]", "command can't be"),
        (ROW + "workspaces = 'yes'", "workspaces can't be 'yes'"),
        (ROW + "note = 2020-01-01", "note can't be"),
    ],
    ids=lambda value: value[:30],
)
def test_a_wrong_list_is_refused_with_the_row(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(TaskError, match=said):
        read_projects(tmp_path / "list.toml")


def test_a_clone_without_a_version_is_taken_at_the_commit_that_is_checked_out(tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text("\ufeff[[projects]]\nname = 'a'\nkind = 'git'\npath = 'a'\n", encoding="utf-8")
    with pytest.raises(
        TaskError, match="project 1: it names no version, and no commit is checked out .*name a commit or tag"
    ):
        read_projects(tmp_path / "list.toml")
    (tmp_path / "a").mkdir()
    git(tmp_path / "a", "init", "-q")
    with pytest.raises(TaskError, match="no commit is checked out"):
        read_projects(tmp_path / "list.toml")
    ids = []
    for _ in range(2):
        git(tmp_path / "a", "commit", "-q", "--allow-empty", "-m", "one")
        [found] = read_projects(tmp_path / "list.toml")
        assert git(tmp_path / "a", "rev-parse", "HEAD").decode().startswith(found.version)
        ids.append(found.id)
    assert ids[0] != ids[1]  # the next commit is another project to install


@pytest.mark.parametrize(
    "text",
    [
        "a." * 500 + "b = 1",
        "note = " + "[" * 5000 + "]" * 5000,
        "digest = 1\ntests = 3\n",
        RECIPE.replace('"1"', "2020-01-01"),
        RECIPE.replace("version =", "other ="),
        RECIPE.replace("steps = []", "steps = 3"),
    ],
    ids=["long key", "deep", "no plan", "a day", "unknown key", "no list"],
)
def test_a_text_that_is_no_recipe_is_refused_and_ends_nothing_else(text: str) -> None:
    with pytest.raises(TaskError, match="changed by hand"):
        read_recipe(RECIPE)  # well formed but for its digest
    with pytest.raises(TaskError, match="this is no recipe of an environment"):
        read_recipe(text)


def test_a_dry_run_says_what_would_be_made_and_an_unknown_name_what_there_is(tmp_path: Path) -> None:
    answer = make(PROJECTS, tmp_path / "out", dry_run=True)
    assert isinstance(answer, Answer) and set(answer.document["projects"]) == {
        one.name for one in read_projects(PROJECTS)
    }
    assert not (tmp_path / "out").exists()
    with pytest.raises(TaskMakeError, match="it has"):
        make(PROJECTS, tmp_path / "out", generators=["absent"])
