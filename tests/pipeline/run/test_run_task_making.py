"""A making that is ended leaves its account, and one that goes on takes no bug a second time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.core.events.stopping import Stopped
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run import task_making
from etude.pipeline.run.meter import StageCost
from etude.pipeline.run.task_making import EVERY_S, MakingReport
from etude.tasks.environment.environment import Environment
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext
from etude.tasks.generate.protocols import GenerationRequest, InstallResult, ProjectDiscarded
from etude.tasks.generate.run.duplicates import DuplicateFilter
from etude.tasks.generate.run.journal import GenerationJournal
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

PROJECT = InstalledProject(
    Environment("one", "1.0"), {"sums.py": "def total(v):\n    return sum(v)\n"}, Baseline(frozenset())
)


def a_bug(name: str, *, place: str = "sums.py:total", failing: tuple[str, ...] = ("t::a",)) -> Task:
    result = {"generator": "bugs", "places": [place], "operators": ["slice"], "project": "one-1.0"}
    hidden = {"fail_to_pass": list(failing)}
    files = {"sums.py": f"# {name}\n"}
    return Task(name, "debugging", "bugs", "", files, (), "commands", hidden, dict(PROJECT.files), metadata=result)


class Ended:
    """A generator in whose first candidate SIGTERM comes."""

    name, category, languages = "ended", "debugging", ("python",)

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        yield Candidate("nothing", self.nothing)
        yield Candidate("ended", self.ended)

    async def nothing(self) -> Task:
        raise CandidateRejected("no test shows it")

    async def ended(self) -> Task:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(600)
        raise AssertionError("the signal ends what waits")


def test_a_making_that_is_terminated_leaves_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def built(name: str) -> InstallResult:
        return InstallResult(PROJECT)

    def terminate(number: int, frame: object) -> None:
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(task_making, "installing", lambda listed, installers: built)
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with pytest.raises(Stopped):
            task_making.make(
                read_recipe([]), GenerationRequest(["one"], {"ended": Ended()}), {}, tmp_path, lambda progress: None
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["candidates"] == 1 and document["generators"]["ended"]["reasons"] == {"no test shows it": 1}


class _Installer:
    def __init__(self, name: str, able: bool) -> None:
        self.name, self.able = name, able

    async def install(self, wanted: CatalogueProject) -> InstallResult:
        if self.able:
            return InstallResult(PROJECT, self.name, 0.25)
        error = ProjectDiscarded("no steps", self.name)
        error.spent = {"dollars": 0.5}
        raise error


async def test_the_first_builder_that_can_installs_and_what_the_others_cost_is_reported() -> None:
    listed = {"one": CatalogueProject("one", "sdist", "1.0")}
    unable, able = _Installer("small", able=False), _Installer("large", able=True)
    found = await task_making.installing(listed, [unable, able])("one")  # type: ignore[list-item]
    assert (found.builder, found.dollars) == ("large", 0.75)
    with pytest.raises(ProjectDiscarded, match="small: no steps; small: no steps"):
        await task_making.installing(listed, [unable, unable])("one")  # type: ignore[list-item]


def test_what_a_kill_would_lose_of_the_account_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("etude.pipeline.run.task_making.time.monotonic", lambda: now[0])
    report = MakingReport(tmp_path, GenerationJournal(tmp_path, {}))
    progress = report.with_writes(lambda so_far: None)
    for passed, seconds, written in ((1.0, 1.0, False), (EVERY_S, 31.0, True), (EVERY_S + 1, 62.0, True)):
        (tmp_path / "report.json").unlink(missing_ok=True)
        now[0] += passed
        report.add_cost(StageCost(seconds, seconds / 2))
        progress(None)  # type: ignore[arg-type]
        assert (tmp_path / "report.json").is_file() == written
    assert GenerationJournal(tmp_path, {}).spent == {"seconds": 62.0, "core_s": 31.0}


async def test_a_making_that_goes_on_knows_the_bugs_of_earlier_runs(tmp_path: Path) -> None:
    async def as_it_is(task: Task, project: InstalledProject) -> Task:
        return task

    folder = TaskFolder(tmp_path, make=True)
    finish = DuplicateFilter(folder).wrap_finalizer(as_it_is)
    folder.add(await finish(a_bug("first"), PROJECT), PROJECT)
    for twins in (finish, DuplicateFilter(TaskFolder(tmp_path)).wrap_finalizer(as_it_is)):
        with pytest.raises(CandidateRejected, match="the same as first"):
            await twins(a_bug("second"), PROJECT)
        assert await twins(a_bug("elsewhere", place="sums.py:mean"), PROJECT)
        assert await twins(a_bug("otherwise", failing=("t::b",)), PROJECT)
        assert await twins(a_bug("first"), PROJECT)  # made again after a kill between its record and its decision


async def test_features_taken_out_of_the_same_files_are_two_where_what_is_left_differs(tmp_path: Path) -> None:
    async def as_it_is(task: Task, project: InstalledProject) -> Task:
        return task

    def a_feature(name: str, left: str) -> Task:
        result = {"generator": "feature-deletion", "project": "one-1.0"}
        whole = {"sums.py": "def total(v): ...\n\n\ndef mean(v): ...\n"}
        return Task(name, "features", "small", "", {"sums.py": left}, (), "commands", {}, whole, metadata=result)

    finish = DuplicateFilter(TaskFolder(tmp_path, make=True)).wrap_finalizer(as_it_is)
    await finish(a_feature("total", "def mean(v): ...\n"), PROJECT)
    await finish(a_feature("mean", "def total(v): ...\n"), PROJECT)
    with pytest.raises(CandidateRejected, match="the same as mean"):
        await finish(a_feature("the average", "def total(v): ...\n"), PROJECT)
