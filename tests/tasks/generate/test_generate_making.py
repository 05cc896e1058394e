"""The making: what it decides is written down, kills cost what was in flight, faults of ours decide nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from etude.sandbox.errors import InfraError
from etude.tasks.environment.environment import Environment
from etude.tasks.errors import TaskError
from etude.tasks.generate.generator import Baseline, Bench, Installed
from etude.tasks.generate.making.account import account, told
from etude.tasks.generate.making.decisions import Decisions
from etude.tasks.generate.making.finishing import finish
from etude.tasks.generate.making.making import BREAKS, Making, MakingFault
from etude.tasks.generate.order import Built, Discarded, Order
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.proof import LeftOut
from etude.tasks.task import Task
from etude.tasks.validation.workshop import Candidate

FACTS = Facts("`total` forgets the last value", expected="6", actual="3")


def a_task(name: str, category: str) -> Task:
    files = {"src/sums.py": "def total(values):\n    return sum(values[:-1])\n"}
    solution = {"src/sums.py": "def total(values):\n    return sum(values)\n"}
    return Task(name, category, "made", "", files, (), "commands", solution=solution, metadata={"facts": FACTS.told()})


class Maker:
    """A generator whose candidates do as their number says."""

    languages = ("python",)

    def __init__(self, category: str, say=lambda number: None, most: int = 9) -> None:
        self.name, self.category, self.say, self.most = f"{category}-maker", category, say, most
        self.built: list[str] = []

    def candidates(self, project: Installed, bench: Bench, seed: int):
        for number in range(self.most):
            name = f"{project.name}-{self.category}-{number}"
            yield Candidate(name, lambda name=name, number=number: self.build(name, number))

    async def build(self, name: str, number: int) -> Task:
        await asyncio.sleep(0)
        self.built.append(name)
        if (error := self.say(number)) is not None:
            raise error
        return a_task(name, self.category)


class Shelf(dict):
    def ids(self):
        return set(self)

    def add(self, task: Task, installed: Installed, recipe: str) -> None:
        self[task.id] = task


async def install(name: str) -> Built:
    if name == "broken":
        raise Discarded("pip found no such release")
    return Built(Installed(Environment(name, "1.0"), {}, Baseline(frozenset())))


def a_making(folder: Path, shelf: Shelf, *makers: Maker, install=install, **asked) -> Making:
    asked = {"projects": ["one", "two"], **asked}
    order = Order(generators={maker.name: maker for maker in makers}, **asked)
    bench = Bench(None)  # type: ignore[arg-type]
    return Making(order, install, finish, shelf, Decisions(folder, order.asked()), bench)


async def test_a_making_goes_on_where_it_was_and_tries_nothing_twice(tmp_path: Path) -> None:
    shelf, maker = Shelf(), Maker("debugging", lambda number: LeftOut("no test breaks") if number % 2 else None)
    await a_making(tmp_path, shelf, maker, count=3).run()
    assert len(shelf) == 3
    first = list(maker.built)
    await a_making(tmp_path, shelf, maker).run()
    assert len(shelf) == 10 and len(maker.built) == len(set(maker.built)) == 18
    assert maker.built[: len(first)] == first


async def test_a_task_goes_with_the_environment_that_its_generator_installed(tmp_path: Path) -> None:
    commit = Built(Installed(Environment("one", "abc"), {"a.py": ""}, Baseline(frozenset())), recipe="of the commit")

    class Installing(Maker):
        async def build(self, name: str, number: int) -> Task:
            task = await super().build(name, number)
            environment = Environment("one", "abc" if number else "1.0")
            return replace(task, metadata={**task.metadata, "environment": environment.told()})

        def installed_as(self, environment: str) -> Built | None:
            return commit if environment == "one-abc" else None

    class Keeping(Shelf):
        def add(self, task: Task, installed: Installed, recipe: str) -> None:
            self[task.id] = (installed.name, recipe)

    shelf = Keeping()
    await a_making(tmp_path, shelf, Installing("debugging", most=2), projects=["one"]).run()
    assert [*shelf.values()] == [("one-1.0", ""), ("one-abc", "of the commit")]


async def test_the_prompts_are_written_and_the_instruction_is_one_of_them(tmp_path: Path) -> None:
    shelf = Shelf()
    await a_making(tmp_path, shelf, Maker("debugging")).run()
    for task in shelf.values():
        assert set(task.metadata["prompts"]) == {"terse", "ambiguous", "full"}
        assert task.instruction == task.metadata["prompts"][task.metadata["style"]]


@pytest.mark.parametrize(
    "error", [ValueError("4300 digits"), UnicodeEncodeError("utf-8", "\udce9", 0, 1, "surrogates")]
)
async def test_a_project_that_breaks_its_install_is_left_out_and_the_others_are_made(
    tmp_path: Path, error: Exception
) -> None:
    async def breaking(name: str) -> Built:
        if name == "broken":
            raise error
        return await install(name)

    making = a_making(tmp_path, Shelf(), Maker("a"), install=breaking, projects=["broken", "one"])
    await making.run()
    assert (
        "the install broke" in making.decisions.installs["broken"].reason
        and making.decisions.installs["one"].reason == ""
    )
    assert any("broken" in fault for fault in making.faults)


async def test_a_task_whose_prompt_gives_the_reference_away_is_left_out_with_the_reason(tmp_path: Path) -> None:
    class Teller(Maker):
        async def build(self, name: str, number: int) -> Task:
            task = a_task(name, self.category)
            task.metadata["facts"] = Facts("`total` should `return sum(values)` at last").told()
            return task

    shelf = Shelf()
    making = a_making(tmp_path, shelf, Teller("debugging", most=1))
    await making.run()
    assert not shelf
    assert "a line of the reference" in making.decisions.candidates["one-1.0-debugging-0"].reason


async def test_a_discarded_project_is_told_and_not_tried_again(tmp_path: Path) -> None:
    asked: list[str] = []

    async def counting(name: str) -> Built:
        asked.append(name)
        return await install(name)

    for _ in range(2):
        making = a_making(tmp_path, Shelf(), Maker("a"), install=counting, projects=["broken", "one"])
        await making.run()
    assert asked.count("broken") == 1
    document = account(making.decisions)
    assert document["installs"]["rules"]["discarded"] == {"broken": "pip found no such release"}
    assert "1 of 2 projects installed" in told(document)


async def test_faults_of_ours_decide_nothing_and_stop_the_making_when_they_do_not_end(tmp_path: Path) -> None:
    making = a_making(tmp_path, Shelf(), Maker("a", lambda number: InfraError("no sandbox"), most=30))
    with pytest.raises(MakingFault, match="Run the same command again"):
        await making.run()
    assert not making.decisions.candidates


async def test_a_generator_that_breaks_is_told_and_leaves_the_others_alone(tmp_path: Path) -> None:
    shelf = Shelf()
    making = a_making(tmp_path, shelf, Maker("a", lambda number: KeyError("x"), most=30), Maker("b"), jobs=1)
    await making.run()
    assert len(shelf) == 18
    assert len(making.faults) == 2 * BREAKS and "KeyError" in making.faults[0]
    assert all(row.broken for row in making.decisions.candidates.values() if row.category == "a")


async def test_a_budget_begins_nothing_after_its_end(tmp_path: Path) -> None:
    shelf = Shelf()
    await a_making(tmp_path, shelf, Maker("a"), budget_s=0.0).run()
    assert not shelf


def test_a_line_that_a_kill_tore_is_no_decision_and_another_seed_is_refused(tmp_path: Path) -> None:
    log = Decisions(tmp_path, {"seed": 0}).path
    with open(log, "a") as file:
        file.write('{"kind": "candidate", "id": "half')
    assert not Decisions(tmp_path, {"seed": 0}).candidates
    with pytest.raises(TaskError, match="another --out"):
        Decisions(tmp_path, {"seed": 1})
