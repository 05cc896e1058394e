"""A Go, a Java and a Rust project, installed by recorded runs of a setter and a builder: scripted answers over real tools, said again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.reader import read_session
from etude.sandbox.errors import InfraError
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.install.agents import answers
from etude.tasks.generate.install.agents.builder import ModelBuilder
from etude.tasks.generate.install.agents.interview import Model
from etude.tasks.generate.install.agents.recorded import RecordedPolicy
from etude.tasks.generate.install.agents.setter import ModelSetter
from etude.tasks.generate.install.installing import Installer
from etude.tasks.generate.sources.projects import CatalogueProject

DATA = Path(__file__).parent / "data" / "installs"
GO = CatalogueProject("shlex", "debian", "0.0~git20191202.e7afc7f-1", "go", "golang-github-google-shlex")
JAVA = CatalogueProject("json-simple", "debian", "2.3.0-1", "java")
JARS = ("junit4", "hamcrest", "junit-platform-console-standalone")
RUST = "librust-semver-dev"


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()


def last_words(path: Path) -> str:
    return read_session(path).of("completion")[-1].data["message"]["text"]


@pytest.mark.parametrize("goals", sorted(DATA.glob("*/*.goals.jsonl")), ids=lambda path: path.parent.name)
def test_recorded_answers_are_goals_and_a_recipe_that_are_taken(goals: Path) -> None:
    assert sum(goal.tests for goal in answers.goals(last_words(goals))) >= 3
    built = goals.with_name(goals.name.replace(".goals", ".build-1"))
    assert answers.build(
        last_words(built), ("a_test.go", "tests/test_version.rs", "src/test/java/a/ATest.java")
    ).tests.files


async def installed(wanted: CatalogueProject, pool: SandboxPool, cache: Path) -> dict[str, int]:
    """Tests by file of the project as the recorded run installs it."""
    said = RecordedPolicy(DATA / wanted.name)
    model = Model(said, HarnessSettings.full(preset="search_replace", lint_delta_s=0.0, max_command_s=600.0))
    installer = Installer(pool, cache, ModelSetter(model, pool), ModelBuilder(model, pool))
    try:
        built = await installer.install(wanted)
    except InfraError as error:
        pytest.skip(str(error))
    return {file: len(names) for file, names in built.installed.baseline.by_file.items()}


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"this machine has no {program}")


@pytest.mark.nightly
async def test_a_go_project_is_installed_by_a_recorded_run(pool: SandboxPool, tmp_path: Path) -> None:
    needs("go")
    assert await installed(GO, pool, tmp_path) == {"shlex_test.go": 4}


@pytest.mark.nightly
async def test_a_java_project_is_installed_by_a_recorded_run(pool: SandboxPool, tmp_path: Path) -> None:
    needs("javac")
    if lacking := [jar for jar in JARS if not Path(f"/usr/share/java/{jar}.jar").exists()]:
        pytest.skip(f"this machine has no {', '.join(lacking)} in /usr/share/java (Debian's junit4 and junit5)")
    found = await installed(JAVA, pool, tmp_path)
    folder = "src/test/java/org/json/simple"
    # Two classes of one name, in two packages.
    assert (found[f"{folder}/YylexTest.java"], found[f"{folder}/parser/YylexTest.java"]) == (8, 1)
    assert sum(found.values()) == 73 and len(found) == 8


@pytest.mark.nightly
async def test_a_rust_project_is_installed_by_a_recorded_run(pool: SandboxPool, tmp_path: Path) -> None:
    needs("cargo")
    try:
        subprocess.run(["apt-get", "download", RUST], cwd=tmp_path, check=True, capture_output=True, timeout=120)
        (package,) = tmp_path.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, tmp_path / "x"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{RUST} can't be fetched: {error}")
    (tree,) = (tmp_path / "x/usr/share/cargo/registry").glob("semver-1.0.14")
    wanted = CatalogueProject("semver", "folder", "1.0.14", "rust", path=str(tree))
    found = await installed(wanted, pool, tmp_path)
    assert found["tests/test_version.rs"] >= 10 and len(found) == 4
