"""Scripted policies. The expert demonstrates; the expert, one that does nothing and one that cheats are baselines in
the benchmark.

The expert is a text policy of deliberately mixed judgement, one object per session, with its plan fixed by (task,
seed). It answers the harness' request for a self-summary with the done and the remaining parts. Before an edit it reads
again what the summary cut away.
"""

from __future__ import annotations

import random
from typing import Callable

from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message, ToolCall
from etude.tasks.cheats.exercise import CHEATS
from etude.tasks.generate.plan import Call, ExpertPlan, Part, PlannedTurn, make_plan, view
from etude.tasks.task import Task


class Expert:
    """Follows its plan. `competence` is the probability that the plan is a good one (1: always)."""

    name = "expert"
    takes_tokens = False

    def __init__(self, task: Task, seed: int, *, competence: float = 0.5) -> None:
        self.level = task.level
        self.plan: ExpertPlan = make_plan(task, seed, competence)
        self._left = list(self.plan.turns)
        self._shown: set[str] = set()
        self._finished: list[Part] = []
        self._calls = 0

    async def complete(self, request: Request) -> Completion:
        if request.extra.get("summary"):
            text = self._summary()
            self._shown.clear()  # the next segment does not hold the files that were read
            return Completion(message=Message("assistant", text))
        if not self._left:
            raise PolicyError(f"the plan for {request.session_id} is over, but another turn was requested", infra=False)
        return Completion(message=self._play(self._next()))

    async def release(self, session_id: str) -> None:
        """Keeps nothing outside the object."""

    def _next(self) -> PlannedTurn:
        turn = self._left[0]
        if turn.needs and turn.needs not in self._shown:
            return view(turn.needs)
        return self._left.pop(0)

    def _play(self, turn: PlannedTurn) -> Message:
        self._shown.update(turn.shows)
        if turn.part is not None:
            self._finished.append(turn.part)
        return Message("assistant", calls=tuple(self._call(call) for call in turn.calls))

    def _call(self, call: Call) -> ToolCall:
        self._calls += 1
        return ToolCall(f"c{self._calls - 1}", *call)

    def _summary(self) -> str:
        """`done A left B in core.py`: names of parts, with the file once it was read."""
        done = [part["name"] for part in self._finished]
        left = [
            part["name"] + (f" in {where}" if (where := part.get("look", part["path"])) in self._shown else "")
            for part in self.plan.parts
            if part not in self._finished
        ]
        words = [f"done {' '.join(done)}"] if done else []
        return " ".join([*words, *([f"left {' '.join(left)}"] if left else [])])


def expert(task: Task, seed: int) -> Policy:
    """Always competent."""
    return Expert(task, seed, competence=1.0)


def nop(task: Task, seed: int) -> Policy:
    """Declares the work done."""
    return ScriptedPolicy([_turn(("done", {"message": "fixed"}))], name="nop")


def cheat(task: Task, seed: int) -> Policy:
    """One of the cheats, carried out with the edit tool."""
    chosen = random.Random(f"cheat {task.id} {seed}").choice(sorted(CHEATS))
    edits = [_edit(task, path, data.decode()) for path, data in CHEATS[chosen](task).items()]
    calls = [call for call in edits if call is not None]
    return ScriptedPolicy([_turn(*calls, ("done", {"message": "fixed"}))], name="cheat")


BASELINES: dict[str, Callable[[Task, int], Policy]] = {"expert": expert, "nop": nop, "cheat": cheat}

_Call = tuple[str, dict[str, str]]


def _edit(task: Task, path: str, text: str) -> _Call | None:
    """The call that turns a file of the task into `text`. The whole old text occurs exactly once in its file."""
    old = task.files.get(path, "")
    return ("edit", {"path": path, "old": old, "new": text}) if text != old else None


def _turn(*calls: _Call) -> Message:
    return Message("assistant", calls=tuple(ToolCall(f"c{i}", *call) for i, call in enumerate(calls)))
