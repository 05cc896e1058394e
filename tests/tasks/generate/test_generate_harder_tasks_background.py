"""Harder tasks made while a run trains: proved, of the same project, and visible only when they are whole in the
folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.sandbox.errors import InfraError
from etude.tasks.environment.environment import KEY, Environment
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext
from etude.tasks.generate.generators.combined import CombinedBugs
from etude.tasks.generate.harder_tasks.background import GrowingTaskSource, HarderTaskGenerator
from etude.tasks.generate.harder_tasks.builder import HarderTaskBuilder
from etude.tasks.generate.harder_tasks.selection import WINDOW, HarderTaskSelector
from etude.tasks.generate.harder_tasks.variants import FolderVariants, sized_task
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.source import FolderTaskSource
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

PROJECT = InstalledProject(
    Environment("sums", "1.0"), {"sums.py": "def total(v):\n    return sum(v)\n"}, Baseline(frozenset("t"))
)
TASKS = 24


def a_task(name: str, lines: int, generator: str = "bug-injection") -> Task:
    metadata = {
        KEY: PROJECT.environment.to_record(),
        "project": PROJECT.name,
        "generator": generator,
        "changed": {"lines": lines, "files": 1},
        "facts": Facts("`total` forgets the last value", expected="6", actual="3").to_record(),
    }
    wrong = {"sums.py": f"def total(v):\n    return {name!r}\n"}
    solution = {"sums.py": PROJECT.files["sums.py"] + f"# {name}\n"}
    return Task(name, "debugging", generator, "mend it", wrong, (), "commands", solution=solution, metadata=metadata)


class Combined:
    """Candidates in order of `say`: the lines of a task, or an error."""

    name, category, languages = CombinedBugs.name, "debugging", ("python",)

    def __init__(self, say: Callable[[int], int | Exception]) -> None:
        self.say, self.built = say, 0

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        for number in range(1000):
            yield Candidate(f"combined-{number}", lambda number=number: self.build(number))

    async def build(self, number: int) -> Task:
        self.built += 1
        said = self.say(number)
        if isinstance(said, Exception):
            raise said
        return a_task(f"combined-{number}", said, self.name)


class Run:
    """A run of groups that are all solved, over a folder of equally small tasks."""

    def __init__(self, root: Path, maker: Combined, most: int = 3) -> None:
        tasks = TaskFolder(root / "tasks", make=True)
        for number in range(TASKS if not tasks.rows else 0):
            tasks.add(a_task(f"single-{number}", 2), PROJECT)
        place = TaskFolder(root / "harder", make=True)
        self.ids, self.notes = tasks.ids("train"), list[str]()
        self.source = GrowingTaskSource(FolderTaskSource(tasks), place)
        siblings = FolderVariants(map(sized_task, [*tasks.rows.values(), *place.rows.values()]))
        self.service = HarderTaskSelector(siblings, root / "harder.jsonl", self.ids)
        bench = ProofContext(None)  # type: ignore[arg-type]
        deepening = HarderTaskBuilder(tasks, place, bench, max_candidates=most, generators={maker.name: maker})
        self.growing = HarderTaskGenerator(self.service, siblings, deepening, self.notes.append)

    async def groups(self, first: int, last: int) -> list[str]:
        served = []
        for group in range(first, last):
            served.append(self.service.serve(group, self.ids[group]))
            self.growing.poll()
            while self.growing._making is not None:
                await asyncio.sleep(0.001)
            self.service.record_scores(group, [1.0] * 8)
        return served


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    async def baseline(environment: Environment, files: object, pool: object) -> tuple[Baseline, str]:
        return PROJECT.baseline, ""

    monkeypatch.setattr("etude.tasks.generate.harder_tasks.builder.baseline", baseline)


async def test_a_mastered_template_gets_generated_tasks(tmp_path: Path) -> None:
    run = Run(tmp_path, Combined(lambda number: 6))
    served = await run.groups(0, 2 * WINDOW + 2)
    assert served[: WINDOW + 1] == list(run.ids[: WINDOW + 1])  # it was lacking, and no one waits for the generation
    made = [one for one in served if one.startswith("combined")]
    assert made and len(set(made)) == len(made)
    task = run.source.task(made[0])
    assert task.split == "train" and set(task.metadata["prompts"]) == {"terse", "ambiguous", "full"}
    assert run.growing.made >= len(made) and made[0] not in run.source.ids("train")


async def test_a_resumed_run_serves_the_tasks_generated_before(tmp_path: Path) -> None:
    run = Run(tmp_path, Combined(lambda number: 6))
    before = await run.groups(0, 2 * WINDOW)
    again = Run(tmp_path, Combined(lambda number: 6))
    assert [again.service.serve(group, again.ids[group]) for group in range(2 * WINDOW)] == before
    more = await again.groups(2 * WINDOW, 2 * WINDOW + 4)
    assert not set(more) & set(before) and any(one.startswith("combined") for one in more)


@pytest.mark.parametrize("said", [CandidateRejected("no test shows it"), 2])
async def test_a_template_without_a_harder_task_is_reported_once_and_stays(
    tmp_path: Path, said: int | Exception
) -> None:
    maker = Combined(lambda number: said)
    run = Run(tmp_path, maker, most=3)
    assert await run.groups(0, 3 * WINDOW) == list(run.ids[: 3 * WINDOW])
    assert maker.built == 3 and len(run.notes) == 1
    assert ("no test shows it" if isinstance(said, Exception) else "a harder task changes at least 3") in run.notes[0]


async def test_an_infrastructure_error_decides_nothing_and_a_broken_generator_costs_no_training(tmp_path: Path) -> None:
    faults = iter([InfraError("no sandbox")])
    run = Run(tmp_path, Combined(lambda number: next(faults, 6)))
    assert any(one.startswith("combined") for one in await run.groups(0, 2 * WINDOW + 2))
    assert "the next group tries again" in run.notes[0]
    (tmp_path / "other").mkdir()
    broken = Run(tmp_path / "other", Combined(lambda number: KeyError("x")))
    assert await broken.groups(0, 2 * WINDOW) == list(broken.ids[: 2 * WINDOW])
    assert "failed: KeyError" in broken.notes[0]
