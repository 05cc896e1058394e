"""The scripted expert: a text policy of deliberately mixed judgement, one object per session, its plan fixed by (task, seed).

It answers the harness' request for a self-summary with the done and the remaining parts, and looks again at what the
summary cut away before it edits.
"""

from __future__ import annotations

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message, ToolCall
from etude.tasks.generate.plan import Call, Part, Plan, Turn, make_plan, view
from etude.tasks.task import Task


class Expert:
    """Plays its plan. `competence` is the probability that the plan is a good one (1: always)."""

    name = "expert"
    takes_tokens = False

    def __init__(self, task: Task, seed: int, *, competence: float = 0.5) -> None:
        self.level = task.level
        self.plan: Plan = make_plan(task, seed, competence)
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
            raise PolicyError(f"the plan for {request.session_id} is over, yet another turn was asked", infra=False)
        return Completion(message=self._play(self._next()))

    async def release(self, session_id: str) -> None:
        """Keeps nothing outside the object."""

    def _next(self) -> Turn:
        turn = self._left[0]
        if turn.needs and turn.needs not in self._shown:
            return view(turn.needs)
        return self._left.pop(0)

    def _play(self, turn: Turn) -> Message:
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
