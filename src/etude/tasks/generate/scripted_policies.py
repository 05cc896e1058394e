"""Scripted policies. The expert demonstrates; the expert, one that does nothing and one that cheats are baselines in
the benchmark.

The expert is a text policy of deliberately mixed judgement, one object per session, with its plan fixed by (task,
seed). It answers the harness' request for a self-summary with the done and the remaining parts. Before an edit it reads
again what the summary cut away.
"""

from __future__ import annotations

import random
from typing import Protocol

from etude.agent.harness.presets.preset import Preset
from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message, ToolCall
from etude.tasks.cheats.exercise import CHEATS
from etude.tasks.generate.expert_calls import ExpertCalls, SpokenCall, require_moves
from etude.tasks.generate.plan import FIXED, Call, ExpertPlan, Part, PlannedTurn, make_plan, view
from etude.tasks.task import Task


class Expert:
    """Follows its plan. `competence` is the probability that the plan is a good one (1: always)."""

    name = "expert"
    takes_tokens = False

    def __init__(self, task: Task, seed: int, *, competence: float = 0.5, preset: Preset | None = None) -> None:
        """Raises NoSuchMove for a preset in which the plan can't be carried out."""
        if preset is not None:
            require_moves(preset)
        self.level = task.level
        self._spoken = ExpertCalls(preset, task)
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
        while self._left:
            message = self._play(self._next())
            if message.text or message.calls:
                return Completion(message=message)
        raise PolicyError(f"the plan for {request.session_id} is over, but another turn was requested", infra=False)

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
        text, calls = self._spoken.of_turn(turn.calls)
        return Message("assistant", text, calls=tuple(map(self._call, calls)))

    def _call(self, call: SpokenCall) -> ToolCall:
        self._calls += 1
        return ToolCall(f"c{self._calls - 1}", *call)

    def _summary(self) -> str:
        """Names of the parts that are done and of those left, these with the file once it was read."""
        done = [part["name"] for part in self._finished]
        left = [
            part["name"] + (f" in {where}" if (where := part.get("look", part["path"])) in self._shown else "")
            for part in self.plan.parts
            if part not in self._finished
        ]
        return self._spoken.summary(done, left)


def expert(task: Task, seed: int, preset: Preset | None = None) -> Policy:
    """Always competent."""
    return Expert(task, seed, competence=1.0, preset=preset)


def nop(task: Task, seed: int, preset: Preset | None = None) -> Policy:
    """Declares the work done."""
    return ScriptedPolicy([_turn(ExpertCalls(preset, task), _DONE)], name="nop")


def cheat(task: Task, seed: int, preset: Preset | None = None) -> Policy:
    """One of the cheats, carried out with the edit tool."""
    chosen = random.Random(f"cheat {task.id} {seed}").choice(sorted(CHEATS))
    edits = [_edit(task, path, data.decode()) for path, data in CHEATS[chosen](task).items()]
    calls, spoken = [call for call in edits if call is not None], ExpertCalls(preset, task)
    turns = [[*calls, _DONE]] if preset is None or not preset.skinned else [calls, [_DONE]]
    return ScriptedPolicy([_turn(spoken, *turn) for turn in turns if turn], name="cheat")


class ScriptedBaseline(Protocol):
    """Makes the policy of one attempt, in the tools of a preset."""

    def __call__(self, task: Task, seed: int, preset: Preset | None = None) -> Policy: ...


BASELINES: dict[str, ScriptedBaseline] = {"expert": expert, "nop": nop, "cheat": cheat}

_DONE: Call = ("done", {"message": FIXED})


def _edit(task: Task, path: str, text: str) -> Call | None:
    """The call that turns a file of the task into `text`. The whole old text occurs exactly once in its file."""
    old = task.files.get(path, "")
    return ("edit", {"path": path, "old": old, "new": text}) if text != old else None


def _turn(spoken: ExpertCalls, *calls: Call) -> Message:
    text, made = spoken.of_turn(calls)
    return Message("assistant", text, calls=tuple(ToolCall(f"c{i}", *call) for i, call in enumerate(made)))
