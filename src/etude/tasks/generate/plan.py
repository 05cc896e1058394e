"""The scripted expert's plan for a task: turns fixed in advance by (task, seed), competent or not.

A competent plan finds, reads, edits and often checks. An incompetent one shows bad judgement, never bad spelling: a
random file, a silenced line, half the work, an early stop, good work reverted. Nothing that a plan writes is random. No
plan of either kind edits again after a test failed behind an edit: reinforcement learning discovers that move
(relapse).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from etude.tasks.task import Task

Call = tuple[str, dict[str, str]]
Part = dict[str, str]  # name, path, old, new; "look" where another path than the edited one is read first

# Half of the competent sessions test their work, so that RL can reinforce the habit, which has a cost.
TEST_SHARE = 0.5
# Share of sessions with several parts that note them as to-dos first.
TODO_SHARE = 0.6
# Relative weights of the ways to fail. All are moves that a session chooses and writes well. A random changed token would blur the
# spelling of every edit, and RL would spend its steps on that (docs/log/noisy-demonstrations.md).
CARELESS = {"second_thoughts": 3.0, "stop_early": 2.0, "wander": 1.0, "misjudge": 1.0, "half": 1.5}
FIXED, GAVE_UP = "fixed", "left"  # the two final messages


@dataclass(frozen=True)
class PlannedTurn:
    """Calls made in one turn. `shows`: paths whose text this turn reads. `needs`: a path that must have been read."""

    calls: tuple[Call, ...]
    shows: tuple[str, ...] = ()
    needs: str = ""
    part: Part | None = None  # the piece of work whose edit this turn makes


@dataclass(frozen=True)
class ExpertPlan:
    """Turns in order; `parts` is the whole work."""

    turns: tuple[PlannedTurn, ...]
    parts: tuple[Part, ...]
    competent: bool


def make_plan(task: Task, seed: int, competence: float) -> ExpertPlan:
    """Pure in its arguments. Competent with probability `competence`."""
    rng = random.Random(f"plan {task.id} {seed}")
    competent = rng.random() < competence
    planner = PLANNERS.get(task.level, Planner)(task, rng)
    turns = planner.competent_plan() if competent else planner.careless()
    return ExpertPlan(tuple(turns), tuple(planner.parts), competent)


class Planner:
    """Writes the turns for one task; levels that go another way override a step."""

    todo_share = TODO_SHARE

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.task, self.rng = task, rng
        self.parts: list[Part] = list(task.hidden["parts"])
        self.sources = sorted(path for path in task.files if path not in task.test_command)

    def competent_plan(self) -> list[PlannedTurn]:
        """All parts, followed by a test in `TEST_SHARE` of the plans."""
        return [*self.opening(), *self.work(self.parts), *self.maybe_test(TEST_SHARE), done(FIXED)]

    def careless(self) -> list[PlannedTurn]:
        """One of the ways to fail."""
        ways = [way for way in CARELESS if way != "half" or len(self.parts) > 1]
        (way,) = self.rng.choices(ways, [CARELESS[way] for way in ways])
        return getattr(self, way)()

    def opening(self) -> list[PlannedTurn]:
        """The turns before the parts."""
        return []

    def work(self, parts: list[Part]) -> list[PlannedTurn]:
        """The parts in order; sometimes a to-do list of all parts comes first."""
        listed = (len(self.parts) > 1 or self.todo_share < TODO_SHARE) and self.rng.random() < self.todo_share
        turns = [PlannedTurn(tuple(("todo", {"text": f"add {part['name']}"}) for part in self.parts))] if listed else []
        for part in parts:
            edit = self.edit(part, part["new"])
            tick: Call = ("todo", {"text": f"done {part['name']}"})
            turns += [*self.find(part), replace(edit, calls=(*edit.calls, tick)) if listed else edit]
        return turns

    def find(self, part: Part) -> list[PlannedTurn]:
        """From a function's name to its text."""
        return [turn("grep", pattern=f"def {part['name']}"), view(part.get("look", part["path"]))]

    def edit(self, part: Part, new: str) -> PlannedTurn:
        arguments = {"path": part["path"], "old": part["old"], "new": new}
        return PlannedTurn((("edit", arguments),), needs=part.get("look", part["path"]), part=part)

    def wander(self) -> list[PlannedTurn]:
        """Views a random file and does nothing."""
        return [view(self.rng.choice(self.sources)), done(self.rng.choice((FIXED, GAVE_UP)))]

    def misjudge(self) -> list[PlannedTurn]:
        """Finds the right place and silences its line instead of repairing it."""
        part = self.rng.choice(self.parts)
        line = part["old"].lstrip()
        indent = part["old"][: len(part["old"]) - len(line)]
        edit = self.edit(part, indent + ("return 0" if line == "pass" else "pass"))
        return [*self.opening(), *self.find(part), edit, *self.maybe_test(TEST_SHARE / 2), done(FIXED)]

    def second_thoughts(self) -> list[PlannedTurn]:
        """Does all the work and reverts the last edit; an early stop where the reverting edit would be ambiguous."""
        turns, last = self.work(self.parts), self.parts[-1]
        after = self.task.files[last["path"]].replace(last["old"], last["new"], 1)
        if after.count(last["new"]) > 1:
            return self.stop_early()
        back = {**last, "old": last["new"]}
        undo = replace(self.edit(back, last["old"]), part=None)
        return [*self.opening(), *turns, undo, *self.maybe_test(TEST_SHARE / 2), done(GAVE_UP)]

    def stop_early(self) -> list[PlannedTurn]:
        """Reads and stops."""
        turns = [*self.opening(), *self.find(self.rng.choice(self.parts))]
        return [*turns[: self.rng.randint(1, max(1, len(turns)))], done(self.rng.choice((FIXED, GAVE_UP)))]

    def half(self) -> list[PlannedTurn]:
        """Does only the first part; the other to-dos stay open."""
        return [*self.opening(), *self.work(self.parts[:1]), *self.maybe_test(TEST_SHARE / 2), done(FIXED)]

    def maybe_test(self, share: float) -> list[PlannedTurn]:
        return [turn("test")] if self.rng.random() < share else []


class FromTests(Planner):
    """Runs the tests first to learn which function fails."""

    def opening(self) -> list[PlannedTurn]:
        return [turn("test")]


class Relapse(FromTests):
    """Repairs the first function. When the tests then name another, it gives up, sometimes after reading it."""

    retest_share = 0.7

    def __init__(self, task: Task, rng: random.Random) -> None:
        super().__init__(task, rng)
        self.second = self.parts.pop()

    def competent_plan(self) -> list[PlannedTurn]:
        turns = [*self.opening(), *self.work(self.parts)]
        if self.rng.random() > self.retest_share:
            return [*turns, done(FIXED)]
        looks = self.find(self.second)[: self.rng.choice((0, 0, 1, 2))]
        return [*turns, turn("test"), *looks, done(GAVE_UP)]


class Rename(Planner):
    """One search shows every line with the name; the lines are edited in the order of the listing."""

    todo_share = 0.4

    def opening(self) -> list[PlannedTurn]:
        found = tuple(part["path"] for part in self.parts)
        return [PlannedTurn((("grep", {"pattern": self.task.hidden["old"]}),), shows=found)]

    def find(self, part: Part) -> list[PlannedTurn]:
        return []


class Feature(Planner):
    """A single part that is sometimes noted as a to-do, as larger features would be."""

    todo_share = 0.3


PLANNERS: dict[str, type[Planner]] = {
    "from-tests": FromTests,
    "relapse": Relapse,
    "rename": Rename,
    "feature": Feature,
}


def turn(tool: Literal["grep", "view", "edit", "test", "todo", "done"], **arguments: str) -> PlannedTurn:
    """A turn of one call."""
    return PlannedTurn(((tool, arguments),))


def view(path: str) -> PlannedTurn:
    return PlannedTurn((("view", {"path": path}),), shows=(path,))


def done(message: str) -> PlannedTurn:
    return turn("done", message=message)
