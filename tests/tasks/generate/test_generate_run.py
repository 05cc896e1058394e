"""A generation run: decisions are written down, kills cost the candidates in flight, infrastructure errors decide
nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from etude.sandbox.errors import InfraError
from etude.tasks.environment.environment import Environment
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.generate.protocols import GenerationRequest, InstallResult, ProjectDiscarded
from etude.tasks.generate.run.finalization import finalize_task
from etude.tasks.generate.run.generation_run import MAX_GENERATOR_ERRORS, GenerationAborted, GenerationRun
from etude.tasks.generate.run.journal import GenerationJournal
from etude.tasks.generate.run.report import build_report, format_report
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

FACTS = Facts("`total` forgets the last value", expected="6", actual="3")


def a_task(name: str, category: str) -> Task:
    files = {"src/sums.py": "def total(values):\n    return sum(values[:-1])\n"}
    solution = {"src/sums.py": "def total(values):\n    return sum(values)\n"}
    return Task(
        name, category, "made", "", files, (), "commands", solution=solution, metadata={"facts": FACTS.to_record()}
    )


class StubGenerator:
    """A generator whose candidates behave as their number says."""

    languages = ("python",)

    def __init__(self, category: str, say=lambda number: None, most: int = 9) -> None:
        self.name, self.category, self.say, self.most = f"{category}-maker", category, say, most
        self.built: list[str] = []

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int):
        for number in range(self.most):
            name = f"{project.name}-{self.category}-{number}"
            yield Candidate(name, lambda name=name, number=number: self.build(name, number))

    async def build(self, name: str, number: int) -> Task:
        await asyncio.sleep(0)
        self.built.append(name)
        if (error := self.say(number)) is not None:
            raise error
        return a_task(name, self.category)


class Sink(dict):
    def ids(self):
        return set(self)

    def add(self, task: Task, installed: InstalledProject, recipe: str) -> None:
        self[task.id] = task


async def install(name: str) -> InstallResult:
    if name == "broken":
        raise ProjectDiscarded("pip found no such release")
    return InstallResult(InstalledProject(Environment(name, "1.0"), {}, Baseline(frozenset())))


def a_run(folder: Path, sink: Sink, *generators: StubGenerator, install=install, **asked) -> GenerationRun:
    asked = {"projects": ["one", "two"], **asked}
    order = GenerationRequest(generators={maker.name: maker for maker in generators}, **asked)
    bench = ProofContext(None)  # type: ignore[arg-type]
    return GenerationRun(order, install, finalize_task, sink, GenerationJournal(folder, order.identity()), bench)


async def test_a_run_resumes_and_tries_nothing_twice(tmp_path: Path) -> None:
    sink, maker = (
        Sink(),
        StubGenerator("debugging", lambda number: CandidateRejected("no test breaks") if number % 2 else None),
    )
    await a_run(tmp_path, sink, maker, count=3).run()
    assert len(sink) == 3
    first = list(maker.built)
    await a_run(tmp_path, sink, maker).run()
    assert len(sink) == 10 and len(maker.built) == len(set(maker.built)) == 18
    assert maker.built[: len(first)] == first


async def test_a_task_is_stored_with_the_environment_that_its_generator_installed(tmp_path: Path) -> None:
    commit = InstallResult(
        InstalledProject(Environment("one", "abc"), {"a.py": ""}, Baseline(frozenset())), recipe="of the commit"
    )

    class Installing(StubGenerator):
        async def build(self, name: str, number: int) -> Task:
            task = await super().build(name, number)
            environment = Environment("one", "abc" if number else "1.0")
            return replace(task, metadata={**task.metadata, "environment": environment.to_record()})

        def installed_as(self, environment: str) -> InstallResult | None:
            return commit if environment == "one-abc" else None

    class Keeping(Sink):
        def add(self, task: Task, installed: InstalledProject, recipe: str) -> None:
            self[task.id] = (installed.name, recipe)

    sink = Keeping()
    await a_run(tmp_path, sink, Installing("debugging", most=2), projects=["one"]).run()
    assert [*sink.values()] == [("one-1.0", ""), ("one-abc", "of the commit")]


async def test_the_prompts_are_written_and_the_instruction_is_one_of_them(tmp_path: Path) -> None:
    sink = Sink()
    await a_run(tmp_path, sink, StubGenerator("debugging")).run()
    for task in sink.values():
        assert set(task.metadata["prompts"]) == {"terse", "ambiguous", "full"}
        assert task.instruction == task.metadata["prompts"][task.metadata["style"]]


@pytest.mark.parametrize(
    "error", [ValueError("4300 digits"), UnicodeEncodeError("utf-8", "\udce9", 0, 1, "surrogates")]
)
async def test_a_project_whose_install_breaks_is_discarded_and_the_others_go_on(
    tmp_path: Path, error: Exception
) -> None:
    async def breaking(name: str) -> InstallResult:
        if name == "broken":
            raise error
        return await install(name)

    making = a_run(tmp_path, Sink(), StubGenerator("a"), install=breaking, projects=["broken", "one"])
    await making.run()
    assert (
        "the install broke" in making.journal.installs["broken"].reason and making.journal.installs["one"].reason == ""
    )
    assert any("broken" in fault for fault in making.faults)


async def test_a_task_whose_prompt_gives_the_reference_away_is_rejected_with_the_reason(tmp_path: Path) -> None:
    class Teller(StubGenerator):
        async def build(self, name: str, number: int) -> Task:
            task = a_task(name, self.category)
            task.metadata["facts"] = Facts("`total` should `return sum(values)` at last").to_record()
            return task

    sink = Sink()
    making = a_run(tmp_path, sink, Teller("debugging", most=1))
    await making.run()
    assert not sink
    assert "a line of the reference" in making.journal.candidates["one-1.0-debugging-0"].reason


async def test_a_discarded_project_is_reported_and_not_tried_again(tmp_path: Path) -> None:
    asked: list[str] = []

    async def counting(name: str) -> InstallResult:
        asked.append(name)
        return await install(name)

    for _ in range(2):
        making = a_run(tmp_path, Sink(), StubGenerator("a"), install=counting, projects=["broken", "one"])
        await making.run()
    assert asked.count("broken") == 1
    document = build_report(making.journal)
    assert document["installs"]["rules"]["discarded"] == {"broken": "pip found no such release"}
    assert "1 of 2 projects installed" in format_report(document)


async def test_infrastructure_errors_decide_nothing_and_abort_the_run_if_they_persist(tmp_path: Path) -> None:
    making = a_run(tmp_path, Sink(), StubGenerator("a", lambda number: InfraError("no sandbox"), most=30))
    with pytest.raises(GenerationAborted, match="Run the same command again"):
        await making.run()
    assert not making.journal.candidates


async def test_a_broken_generator_is_reported_and_leaves_the_others_alone(tmp_path: Path) -> None:
    sink = Sink()
    making = a_run(
        tmp_path, sink, StubGenerator("a", lambda number: KeyError("x"), most=30), StubGenerator("b"), jobs=1
    )
    await making.run()
    assert len(sink) == 18
    assert len(making.faults) == 2 * MAX_GENERATOR_ERRORS and "KeyError" in making.faults[0]
    assert all(row.broken for row in making.journal.candidates.values() if row.category == "a")


async def test_no_candidate_starts_after_the_budget(tmp_path: Path) -> None:
    sink = Sink()
    await a_run(tmp_path, sink, StubGenerator("a"), budget_s=0.0).run()
    assert not sink


def test_a_truncated_line_is_ignored_and_another_seed_is_refused(tmp_path: Path) -> None:
    log = GenerationJournal(tmp_path, {"seed": 0}).path
    with open(log, "a") as file:
        file.write('{"kind": "candidate", "id": "half')
    assert not GenerationJournal(tmp_path, {"seed": 0}).candidates
    with pytest.raises(TaskError, match="another --out"):
        GenerationJournal(tmp_path, {"seed": 1})
