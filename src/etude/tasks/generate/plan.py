"""What the scripted expert will do with a task: turns fixed in advance by (task, seed), competent or not.

A competent plan finds, reads, edits and often checks. An incompetent one shows bad judgement, never bad spelling: a file at
random, a line silenced, half the work, an early stop, good work taken back. Nothing that a plan writes is drawn at random. No plan of
either kind edits again after a test failed behind an edit: that move is left for reinforcement learning to discover (relapse).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from etude.tasks.task import Task

Call = tuple[str, dict[str, str]]
Part = dict[str, str]  # name, path, old, new; "look" if another path than the edited one is read first

# Half of the competent sessions test their work: the habit is there to be reinforced, and not free of cost.
TEST_SHARE = 0.5
# Sessions with several parts that note them as to-dos first.
TODO_SHARE = 0.6
# How often each way to go wrong, relative to each other. All are moves that a session chooses and writes well: a changed token
# that nothing foretells blurs the spelling of every edit, and RL then spends its steps on that (see LOG.md).
CARELESS = {"second_thoughts": 3.0, "stop_early": 2.0, "wander": 1.0, "misjudge": 1.0, "half": 1.5}
FIXED, GAVE_UP = "fixed", "left"  # the two final messages


@dataclass(frozen=True)
class Turn:
    """Calls made in one turn. `shows` names paths whose text this turn puts before the eyes, `needs` one that must be there."""

    calls: tuple[Call, ...]
    shows: tuple[str, ...] = ()
    needs: str = ""
    part: Part | None = None  # the piece of work whose edit this turn makes


@dataclass(frozen=True)
class Plan:
    """Turns in order; `parts` is all the work there is."""

    turns: tuple[Turn, ...]
    parts: tuple[Part, ...]
    competent: bool


def make_plan(task: Task, seed: int, competence: float) -> Plan:
    """Pure in its arguments. Competent with probability `competence`."""
    rng = random.Random(f"plan {task.id} {seed}")
    competent = rng.random() < competence
    planner = PLANNERS.get(task.level, Planner)(task, rng)
    turns = planner.competent() if competent else planner.careless()
    return Plan(tuple(turns), tuple(planner.parts), competent)


class Planner:
    """Writes the turns for one task; levels that go another way override a step."""

    todo_share = TODO_SHARE

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.task, self.rng = task, rng
        self.parts: list[Part] = list(task.hidden["parts"])
        self.sources = sorted(path for path in task.files if path not in task.test_command)

    def competent(self) -> list[Turn]:
        """All the parts, with a test behind them as the habit has it."""
        return [*self.opening(), *self.work(self.parts), *self.maybe_test(TEST_SHARE), done(FIXED)]

    def careless(self) -> list[Turn]:
        """One of the ways to go wrong."""
        ways = [way for way in CARELESS if way != "half" or len(self.parts) > 1]
        (way,) = self.rng.choices(ways, [CARELESS[way] for way in ways])
        return getattr(self, way)()

    def opening(self) -> list[Turn]:
        """What comes before the parts."""
        return []

    def work(self, parts: list[Part]) -> list[Turn]:
        """The parts one after the other; sometimes all the parts there are stand on a to-do list."""
        listed = (len(self.parts) > 1 or self.todo_share < TODO_SHARE) and self.rng.random() < self.todo_share
        turns = [Turn(tuple(("todo", {"text": f"add {part['name']}"}) for part in self.parts))] if listed else []
        for part in parts:
            edit = self.edit(part, part["new"])
            tick: Call = ("todo", {"text": f"done {part['name']}"})
            turns += [*self.find(part), replace(edit, calls=(*edit.calls, tick)) if listed else edit]
        return turns

    def find(self, part: Part) -> list[Turn]:
        """From a function's name to its text."""
        return [turn("grep", pattern=f"def {part['name']}"), view(part.get("look", part["path"]))]

    def edit(self, part: Part, new: str) -> Turn:
        arguments = {"path": part["path"], "old": part["old"], "new": new}
        return Turn((("edit", arguments),), needs=part.get("look", part["path"]), part=part)

    def wander(self) -> list[Turn]:
        """A file at random, and nothing done."""
        return [view(self.rng.choice(self.sources)), done(self.rng.choice((FIXED, GAVE_UP)))]

    def misjudge(self) -> list[Turn]:
        """The right place, and what stands there silenced instead of mended."""
        part = self.rng.choice(self.parts)
        line = part["old"].lstrip()
        indent = part["old"][: len(part["old"]) - len(line)]
        edit = self.edit(part, indent + ("return 0" if line == "pass" else "pass"))
        return [*self.opening(), *self.find(part), edit, *self.maybe_test(TEST_SHARE / 2), done(FIXED)]

    def second_thoughts(self) -> list[Turn]:
        """All the work, and then the last edit taken back; where that would match elsewhere too, an early stop."""
        turns, last = self.work(self.parts), self.parts[-1]
        after = self.task.files[last["path"]].replace(last["old"], last["new"], 1)
        if after.count(last["new"]) > 1:
            return self.stop_early()
        back = {**last, "old": last["new"]}
        undo = replace(self.edit(back, last["old"]), part=None)
        return [*self.opening(), *turns, undo, *self.maybe_test(TEST_SHARE / 2), done(GAVE_UP)]

    def stop_early(self) -> list[Turn]:
        """Looks, and leaves it at that."""
        turns = [*self.opening(), *self.find(self.rng.choice(self.parts))]
        return [*turns[: self.rng.randint(1, max(1, len(turns)))], done(self.rng.choice((FIXED, GAVE_UP)))]

    def half(self) -> list[Turn]:
        """The first part only; what was noted stays open."""
        return [*self.opening(), *self.work(self.parts[:1]), *self.maybe_test(TEST_SHARE / 2), done(FIXED)]

    def maybe_test(self, share: float) -> list[Turn]:
        return [turn("test")] if self.rng.random() < share else []


class FromTests(Planner):
    """Asks the tests which function it is."""

    def opening(self) -> list[Turn]:
        return [turn("test")]


class Relapse(FromTests):
    """Mends the first function. When the tests then name another, it gives up, sometimes after a look."""

    retest_share = 0.7

    def __init__(self, task: Task, rng: random.Random) -> None:
        super().__init__(task, rng)
        self.second = self.parts.pop()

    def competent(self) -> list[Turn]:
        turns = [*self.opening(), *self.work(self.parts)]
        if self.rng.random() > self.retest_share:
            return [*turns, done(FIXED)]
        looks = self.find(self.second)[: self.rng.choice((0, 0, 1, 2))]
        return [*turns, turn("test"), *looks, done(GAVE_UP)]


class Rename(Planner):
    """One search shows every line that holds the name; the lines are edited as they were listed."""

    todo_share = 0.4

    def opening(self) -> list[Turn]:
        found = tuple(part["path"] for part in self.parts)
        return [Turn((("grep", {"pattern": self.task.hidden["old"]}),), shows=found)]

    def find(self, part: Part) -> list[Turn]:
        return []


class Feature(Planner):
    """A single part that is sometimes noted all the same, as larger features would be."""

    todo_share = 0.3


PLANNERS: dict[str, type[Planner]] = {
    "from-tests": FromTests,
    "relapse": Relapse,
    "rename": Rename,
    "feature": Feature,
}


def turn(tool: Literal["grep", "view", "edit", "test", "todo", "done"], **arguments: str) -> Turn:
    """A turn of one call."""
    return Turn(((tool, arguments),))


def view(path: str) -> Turn:
    return Turn((("view", {"path": path}),), shows=(path,))


def done(message: str) -> Turn:
    return turn("done", message=message)
