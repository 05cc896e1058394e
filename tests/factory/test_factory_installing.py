"""The list of projects, the plain installer's steps, and the folder that a making fills."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli.answer import Answer
from etude.cli.task_make import MakeError, make
from etude.factory.generators.generator import Baseline, Installed
from etude.factory.install.kept import keep, kept
from etude.factory.install.plain import install, steps
from etude.factory.making.order import Discarded
from etude.factory.sources.listed import Listed, Pristine, read_list
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import Environment
from etude.tasks.errors import TaskError

PROJECTS = Path(__file__).parents[2] / "recipes" / "projects.toml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no project"),
        ("[[project]]\nname = 3\nversion = '1'", "project 1: name"),
        ("[[project]]\nname = 'a'\nversion = '1'\nverison = '2'", "verison"),
        ("[[project]]\nname = 'a'\nversion = '1'\n" * 2, "named twice"),
        ("[[project", "does not parse"),
    ],
)
def test_a_wrong_list_is_refused_with_the_row(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(TaskError, match=said):
        read_list(tmp_path / "list.toml")


def test_the_shipped_list_reads() -> None:
    assert all(row.version for row in read_list(PROJECTS).values())


def test_extras_for_tests_and_files_of_requirements_are_installed() -> None:
    pyproject = b"[project.optional-dependencies]\ntests = ['pytest-freezer']\ndocs = ['sphinx']\n"
    text = " ".join(steps("one", {"pyproject.toml": pyproject, "requirements-dev.txt": b"", "notes.txt": b""}))
    assert "build[tests]" in text and "requirements-dev.txt" in text and "docs" not in text and "notes" not in text


async def test_a_project_without_tests_is_discarded_before_anything_is_run() -> None:
    with pytest.raises(Discarded, match="no Python tests"):
        await install(Listed(name="a", version="1"), Pristine({"a.py": b""}, ""), None)  # type: ignore[arg-type]


@pytest.fixture
async def own_pool(tmp_path: Path):
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()


async def test_an_installed_project_is_kept_as_long_as_its_snapshot_is(tmp_path: Path, own_pool: SandboxPool) -> None:
    baseline = Baseline(frozenset({"t::a"}), frozenset({"t::b"}), {"test_a.py": ("t::a",)}, {"test_a.py": 0.5})
    one = Installed(Environment("a", "1", snapshot="env-a"), {"a.py": "x = 1\n"}, baseline, "sdist a 1")
    place = tmp_path / "environments" / "a.json"
    keep(one, place)
    assert await kept(place, own_pool) is None
    box = await own_pool.create(SandboxSpec(files={"a.py": b"x = 1\n"}))
    await box.snapshot("env-a")
    await box.kill()
    assert await kept(place, own_pool) == one
    place.write_text("{}")
    with pytest.raises(TaskError, match="remove it"):
        await kept(place, own_pool)


def test_a_dry_run_says_what_would_be_made_and_an_unknown_name_what_there_is(tmp_path: Path) -> None:
    answer = make(PROJECTS, tmp_path / "out", dry_run=True)
    assert isinstance(answer, Answer) and set(answer.document["projects"]) == set(read_list(PROJECTS))
    assert not (tmp_path / "out").exists()
    with pytest.raises(MakeError, match="it has"):
        make(PROJECTS, tmp_path / "out", generators=["absent"])
