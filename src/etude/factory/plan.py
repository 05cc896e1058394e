"""What the scripted expert will do with a task: turns fixed in advance by (task, seed), competent or not.

A competent plan finds, reads, edits and mostly checks. An incompetent one shows bad judgement, never bad spelling: wrong
place, wrong change, half the work, an early stop. No plan of either kind edits again after a test failed behind an edit:
that move is left for reinforcement learning to discover (level relapse).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

from etude.factory.judgement import random_edit, spoiled_text
from etude.tasks.task import Task

Call = tuple[str, dict[str, str]]
Part = dict[str, str]  # name, path, old, new

# Half of the competent sessions test their work: the habit is there to be reinforced, and not free of cost.
TEST_SHARE = 0.5
TODO_SHARE = 0.6
GAVE_UP, FIXED = "left", "fixed"


@dataclass(frozen=True)
class Turn:
    """Calls made in one turn. `shows` names the path this turn puts before the eyes, `needs` one that must be there."""

    calls: tuple[Call, ...]
    shows: str = ""
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
    planner = Planner(task, rng)
    turns = planner.competent() if competent else planner.careless()
    return Plan(tuple(turns), tuple(planner.parts), competent)


class Planner:
    """Writes the turns for one task."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.task, self.rng = task, rng
        self.parts: list[Part] = list(task.hidden["parts"])
        self.editable: list[str] = list(task.metadata["editable"])

    def competent(self) -> list[Turn]:
        """All the parts, with a test behind them as the habit has it."""
        turns = self._begin()
        listed = len(self.parts) > 1 and self.rng.random() < TODO_SHARE
        if listed:
            turns.append(Turn(tuple(("todo", {"text": f"add {part['name']}"}) for part in self.parts)))
        for part in self.parts:
            turns += self._do(part, listed)
        if self.rng.random() < TEST_SHARE:
            turns.append(_turn("test"))
        return [*turns, _done(FIXED)]

    def careless(self) -> list[Turn]:
        """One of the ways to go wrong."""
        ways = [self._wander, self._spoil, self._stop_early]
        if len(self.parts) > 1:
            ways += [self._half, self._half]
        return self.rng.choice(ways)()

    def _begin(self) -> list[Turn]:
        return []

    def _do(self, part: Part, listed: bool) -> list[Turn]:
        turns = [*self._find(part), self._edit(part, part["new"])]
        if listed:
            last = turns.pop()
            tick: Call = ("todo", {"text": f"done {part['name']}"})
            turns.append(Turn((*last.calls, tick), needs=last.needs, part=part))
        return turns

    def _find(self, part: Part) -> list[Turn]:
        return [_turn("grep", pattern=f"def {part['name']}"), _view(part["path"])]

    def _edit(self, part: Part, new: str) -> Turn:
        call: Call = ("edit", {"path": part["path"], "old": part["old"], "new": new})
        return Turn((call,), needs=part["path"], part=part)

    def _wander(self) -> list[Turn]:
        """A file at random, a change at random, no test."""
        path = self.rng.choice(self.editable)
        edit = random_edit(self.task.files[path], self.rng)
        turns = [_view(path)]
        if edit:
            turns.append(_turn("edit", path=path, **edit))
        return [*turns, _done(FIXED)]

    def _spoil(self) -> list[Turn]:
        """The right place and the wrong change."""
        part = self.rng.choice(self.parts)
        new = spoiled_text(part["new"], self.task.files[part["path"]], self.rng)
        edit = self._edit(part, new) if new and new != part["old"] else None
        return [*self._begin(), *self._find(part), *([edit] if edit else []), *self._maybe_test(), _done(FIXED)]

    def _stop_early(self) -> list[Turn]:
        """Looks, and leaves it at that."""
        turns = [*self._begin(), *self._find(self.rng.choice(self.parts))]
        return [*turns[: self.rng.randint(1, len(turns))], _done(self.rng.choice((FIXED, GAVE_UP)))]

    def _half(self) -> list[Turn]:
        """The first part only; what was noted stays open."""
        turns = self._begin()
        if listed := self.rng.random() < TODO_SHARE:
            turns.append(Turn(tuple(("todo", {"text": f"add {part['name']}"}) for part in self.parts)))
        return [*turns, *self._do(self.parts[0], listed), *self._maybe_test(), _done(FIXED)]

    def _maybe_test(self) -> list[Turn]:
        return [_turn("test")] if self.rng.random() < TEST_SHARE / 2 else []


def _turn(tool: Literal["grep", "view", "edit", "test", "todo", "done"], **arguments: Any) -> Turn:
    return Turn(((tool, arguments),))


def _view(path: str) -> Turn:
    return Turn((("view", {"path": path}),), shows=path)


def _done(message: str) -> Turn:
    return _turn("done", message=message)
