"""The two stages over real sandboxes, without a package index: what passes, what is tried again, what is discarded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import DEPS, Environment, TestPlan
from etude.tasks.generate.install.baseline import _sound, baseline
from etude.tasks.generate.install.building import TRIES, build
from etude.tasks.generate.install.goal import Goal
from etude.tasks.generate.install.installing import Installer
from etude.tasks.generate.install.pair import RULES, RecipeTrial
from etude.tasks.generate.install.recipe import InstallRecipe
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.running.report import TestRun
from etude.tasks.running.testrun import RunReport

FILES = {
    "thing.py": b"def one():\n    return 1\n",
    "test_thing.py": b"from thing import one\n\n\ndef test_one():\n    assert one() == 1\n",
}
WANTED = CatalogueProject("thing", "folder", "1.0", path="/nowhere")


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()


class Set:
    async def goals(self, project: Fetched) -> list[Goal]:
        return [Goal("cat /tmp/deps/mark", "what the build left", "built"), Goal("ls", "the tree", "thing.py")]


class Played:
    """A builder that plays its tries one after the other."""

    name = "played"

    def __init__(self, *tries: str) -> None:
        self.tries, self.given = tries, list[RecipeTrial]()

    async def build(self, project: Fetched, goals: Sequence[Goal], tried: Sequence[RecipeTrial]) -> InstallRecipe:
        self.given = list(tried)
        step = self.tries[min(len(tried), len(self.tries) - 1)]
        plan = TestPlan("pytest", (), ("test_thing.py",))
        return InstallRecipe(
            "thing", "1.0", "python", project.digest, (f"mkdir -p {DEPS}", step), plan, {"PYTHONPATH": WORKDIR}
        )


PROJECT = Fetched(WANTED, FILES, "folder thing")
BUILDS = f"echo built > {DEPS}/mark"


async def test_a_try_that_fails_is_reported_to_the_builder_and_the_next_starts_from_the_untouched_tree(
    pool: SandboxPool,
) -> None:
    builder = Played(f"{BUILDS}; false", f"test ! -e {DEPS}/mark && echo other > {DEPS}/mark", BUILDS)
    recipe, tried = await build(PROJECT, pool, Set(), builder)
    assert [one.objection[:6] for one in tried] == ["step `", "`cat /"] and recipe.steps[-1] == BUILDS


async def test_after_five_tries_the_project_is_discarded_with_the_last_reason(pool: SandboxPool) -> None:
    builder = Played("echo no luck; exit 3")
    with pytest.raises(ProjectDiscarded, match="5 tries.*ended with 3: no luck"):
        await build(PROJECT, pool, Set(), builder)
    assert len(builder.given) == TRIES - 1


async def test_a_project_that_lacks_what_its_build_should_have_made_names_the_failed_build(pool: SandboxPool) -> None:
    builder = Played("cd /build ; echo no compiler; exit 3", "true")
    with pytest.raises(
        ProjectDiscarded, match=r"5 tries: `cat /.*; its own build: step `cd /build .*ended with 3: no compiler"
    ):
        await build(PROJECT, pool, Set(), builder)


def test_a_reason_quotes_the_start_of_a_long_command_and_says_that_a_network_was_asked() -> None:
    goal = Goal("pytest " + " ".join(f"tests/test_{n}.py" for n in range(300)), "a summary", r"\d+ passed", None, True)
    why = goal.objection(1, "curl: (6) Could not resolve host: api.example.org\n9 failed")
    assert "tests/test_5.py" in why and "tests/test_20.py" not in why and "more characters" in why
    assert "its tests ask the network" in why and len(why) < 600
    assert Goal("true", "", "yes").objection(0, "").startswith("`true` printed nothing like 'yes'")


async def test_the_rules_begin_no_other_try_once_their_time_is_over(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.tasks.generate.install.building.PATIENCE_S", 0.0)

    class Rules(Played):
        name = RULES

        async def build(self, project: Fetched, goals: Sequence[Goal], tried: Sequence[RecipeTrial]) -> InstallRecipe:
            recipe = await super().build(project, goals, tried)
            return replace(recipe, goals=tuple(goal.command for goal in goals))

    class Suite(Set):
        async def goals(self, project: Fetched) -> list[Goal]:
            return [Goal("true", "the suite", tests=True)]

    with pytest.raises(ProjectDiscarded, match=r"1 tries in \d+ s: step `false` ended with 1"):
        await build(PROJECT, pool, Suite(), Rules("false"))


async def test_the_search_for_files_that_hang_ends_and_keeps_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etude.tasks.generate.install.baseline.SEARCH_S", 0.0)

    class Hanging:
        runs = 0

        async def run(self, files: Sequence[str]) -> RunReport:
            self.runs += 1
            return RunReport(TestRun(frozenset(), frozenset(), -1), "", False, objection="it hangs")

    bench = Hanging()
    assert await _sound(bench, ["a", "b", "c"]) == [] and bench.runs == 1  # type: ignore[arg-type]


@pytest.mark.nightly
async def test_steps_that_edit_the_project_s_own_files_are_no_install(pool: SandboxPool) -> None:
    with pytest.raises(ProjectDiscarded, match="change the tree's own thing.py"):
        await build(PROJECT, pool, Set(), Played(f"{BUILDS}; echo >> thing.py"))


async def test_an_installed_folder_has_its_tests_measured_and_is_taken_from_disk_the_next_time(
    pool: SandboxPool, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for path, data in FILES.items():
        (tree / path).write_bytes(data)
    wanted = CatalogueProject("thing", "folder", "1.0", path=str(tree))
    first = await Installer(pool, tmp_path, Set(), Played(BUILDS)).install(wanted)
    assert first.installed.baseline.by_file == {"test_thing.py": ("test_thing::test_one",)}
    again = await Installer(pool, tmp_path, Set(), Played("false")).install(wanted)
    assert again.installed == first.installed


async def test_tests_of_a_runner_that_names_no_files_are_counted_to_theirs(pool: SandboxPool) -> None:
    text = "import unittest\n\n\nclass {0}(unittest.TestCase):\n    def test_it(self):\n        self.assertTrue(1)\n"
    files = {"test_a.py": text.format("A"), "test_b.py": text.format("B"), "test_c.py": "raise OSError\n"}
    found, said = await baseline(Environment("thing", "1.0", tests=TestPlan("unittest", (), tuple(files))), files, pool)
    assert {file: len(names) for file, names in found.by_file.items()} == {"test_a.py": 1, "test_b.py": 1}
    assert all(found.seconds[file] > 0 for file in found.by_file) and "OSError" in said
