"""A commit that its project's environment does not run is installed by itself, once for equal needs, and no more than a few a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etude.sandbox.errors import InfraError
from etude.tasks.environment.environment import Environment
from etude.tasks.fail_to_pass import CandidateRejected, TestsDoNotRun
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.generators import history
from etude.tasks.generate.generators.commit_environments import CommitEnvironments, needs
from etude.tasks.generate.generators.registry import GENERATORS, with_environments
from etude.tasks.generate.generators.states import States
from etude.tasks.generate.protocols import EnvironmentProvider, InstallResult, ProjectDiscarded
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.task import Task
from etude.tasks.tree import RepositoryTree

FILES = {"pyproject.toml": "[project]\nname = 'm'\n", "m/core.py": "import os\nimport yaml\nfrom m import x\n"}
LISTED = {"m": CatalogueProject("m", "git", "v1", path="/m", command=("pytest",))}


class Installing:
    """Installs at the outer edge: what was asked for, and what it answers."""

    def __init__(self, refuse: str = "") -> None:
        self.asked: list[CatalogueProject] = []
        self.refuse = refuse

    async def __call__(self, wanted: CatalogueProject) -> InstallResult:
        self.asked.append(wanted)
        if self.refuse:
            raise ProjectDiscarded(self.refuse)
        return InstallResult(
            InstalledProject(Environment("m", wanted.version), FILES, Baseline(frozenset())), recipe="toml"
        )


def commit(number: int) -> str:
    return f"{number:040x}"


def test_needs_are_dependency_files_and_imported_packages_alone() -> None:
    same = {
        **FILES,
        "m/core.py": "import yaml\n\n\nX = 1\n",
        "README.md": "import requests\n",
        "m/x.py": "from m import core\n",
    }
    assert needs(FILES) == needs(same)
    assert needs(FILES) != needs({**FILES, "m/core.py": "import yaml, os\nimport typing_extensions\n"})
    assert needs(FILES) != needs({**FILES, "requirements/dev.txt": "pytest\n"})
    assert needs({"a.js": "require('left-pad')"}) != needs({"a.js": "require('./left-pad')"})


async def test_equal_needs_are_installed_once_also_by_the_next_run(tmp_path: Path) -> None:
    install = Installing()
    environments = CommitEnvironments(install, LISTED, tmp_path)
    first = await environments.of("m", commit(1), FILES)
    assert await environments.of("m", commit(2), dict(FILES)) is first
    assert install.asked == [replace(LISTED["m"], version=commit(1))]
    assert environments.installed_as(f"m-{commit(1)}") is first and environments.installed_as("m-v1") is None
    later = Installing()
    await CommitEnvironments(later, LISTED, tmp_path, most=0).of("m", commit(3), FILES)
    assert [one.version for one in later.asked] == [commit(1)]  # which the installer keeps: it costs no build


async def test_a_run_installs_no_more_of_a_project_than_it_may(tmp_path: Path) -> None:
    install = Installing()
    environments = CommitEnvironments(install, LISTED, tmp_path, most=2)
    for number in range(2):
        await environments.of("m", commit(number), {**FILES, "tox.ini": str(number)})
    with pytest.raises(CandidateRejected, match="2 commits of m are installed in this run.*--commit-environments"):
        await environments.of("m", commit(9), {**FILES, "tox.ini": "9"})
    assert len(install.asked) == 2


async def test_another_run_installs_what_the_first_had_no_room_for(tmp_path: Path) -> None:
    async def installed_in_a_run() -> list[int]:
        environments = CommitEnvironments(Installing(), LISTED, tmp_path, most=2)
        good = []
        for number in range(6):
            try:
                await environments.of("m", commit(number), {**FILES, "tox.ini": str(number)})
            except CandidateRejected:
                continue
            good.append(number)
        return good

    assert [await installed_in_a_run() for _ in range(3)] == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]


async def test_needs_that_can_not_be_installed_are_tried_once_and_say_why(tmp_path: Path) -> None:
    install = Installing("no such distribution")
    environments = CommitEnvironments(install, LISTED, tmp_path)
    for number in range(3):
        with pytest.raises(CandidateRejected, match="can't be installed: no such distribution"):
            await environments.of("m", commit(number), FILES)
    assert len(install.asked) == 1


async def test_a_kept_commit_that_is_gone_is_no_reason_to_give_up(tmp_path: Path) -> None:
    await CommitEnvironments(Installing(), LISTED, tmp_path).of("m", commit(1), FILES)

    async def install(wanted: CatalogueProject) -> InstallResult:
        return await Installing("no such commit" if wanted.version == commit(1) else "")(wanted)

    built = await CommitEnvironments(install, LISTED, tmp_path).of("m", commit(2), FILES)
    assert built.installed.environment.version == commit(2)


PROJECT = InstalledProject(Environment("m", "v1"), FILES, Baseline(frozenset()))
RUN = (history.Commit(commit(2), (commit(1),), "a", "Keep the rows"),)
TASK = Task("t", "features", "x", "", {}, (), "commands")


class Proving:
    """What proving says in the environment of the project and of the commit."""

    def __init__(self, own: Exception, commits: Exception | None = None) -> None:
        self.said = {"v1": own, commit(2): commits}
        self.states: list[States] = []

    async def __call__(self, project: InstalledProject, bench: object, states: States) -> Task:
        self.states.append(states)
        if (error := self.said[project.environment.version]) is not None:
            raise error
        return TASK


async def build(proving: Proving, environments: CommitEnvironments | None, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr(history, "prove_states", proving)
    monkeypatch.setattr(history, "tree", lambda repository, commit: RepositoryTree(dict(FILES), ()))
    return await history.build(PROJECT, None, Path(), RUN, "t", environments)  # type: ignore[arg-type]


async def test_a_commit_that_does_not_run_gets_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = TestsDoNotRun("No module named 'yaml'")
    environments = CommitEnvironments(Installing(), LISTED, tmp_path)
    proving = Proving(lacking)
    assert await build(proving, environments, monkeypatch) is TASK
    assert "must_say" not in proving.states[0].metadata
    with pytest.raises(
        CandidateRejected, match=r"no test shows it \(in the project's own environment: No module named 'yaml'\)"
    ):
        await build(Proving(lacking, CandidateRejected("no test shows it")), environments, monkeypatch)
    with pytest.raises(TestsDoNotRun, match="yaml"):
        await build(Proving(lacking), None, monkeypatch)


async def test_what_runs_and_shows_nothing_installs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install = Installing()
    for error in (CandidateRejected("no test shows it"), InfraError("no sandbox")):
        with pytest.raises(type(error), match=str(error)):
            await build(Proving(error), CommitEnvironments(install, LISTED, tmp_path), monkeypatch)
    assert install.asked == []


async def test_short_prompts_of_squashed_commits_name_every_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    proving = Proving(CandidateRejected("no test shows it"))
    monkeypatch.setattr(history, "prove_states", proving)
    monkeypatch.setattr(history, "tree", lambda repository, commit: RepositoryTree(dict(FILES), ()))
    run = (history.Commit(commit(1), (commit(0),), "a", "Count pages"), *RUN)
    with pytest.raises(CandidateRejected):
        await history.build(PROJECT, None, Path(), run, "t")  # type: ignore[arg-type]
    assert proving.states[0].metadata["must_say"] == ["Count", "Keep", "pages", "rows", "the"]


def test_a_making_gives_history_its_environments_and_no_other_generator(tmp_path: Path) -> None:
    environments = CommitEnvironments(Installing(), LISTED, tmp_path)
    found = with_environments(GENERATORS, environments)
    own = found["history"]
    assert (
        isinstance(own, history.HistoryGenerator)
        and own.environments is environments
        and isinstance(own, EnvironmentProvider)
    )
    assert all(found[name] is each for name, each in GENERATORS.items() if name != "history")
