"""The person of a recorded session, for its replay: says the same words at the same turns, and gives the same rulings."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from etude.agent.harness.approval import Approver, Effect, Ruling
from etude.agent.harness.inbox import Inbox, Stopped, Summarize
from etude.core.trace.message import ToolCall
from etude.core.trace.session import Session

T = TypeVar("T")


class RecordedInbox(Inbox):
    """What was said while the agent worked, by the number of turns that had been taken by then.

    A stop that came while the policy spoke is repeated; what a stopped tool had done until then can't be. A summary that the person
    wished for is found by its query, which has a delivery (queue: of an agent that waited); the words with it were steered.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._turns = 0  # taken so far in the replay; `unless_stopped` sees each one begin
        self._said: dict[int, list[str]] = defaultdict(list)
        self._requests: deque[str | Summarize] = deque()
        self._stops: set[int] = set()
        self._summaries: set[int] = set()
        turns = 0
        for entry in session.of("message", "completion"):
            turns += entry.type == "completion"
            delivery, text = entry.data.get("delivery"), entry.data.get("text", "")
            if entry.data.get("summary") and delivery is not None:
                self._summaries.add(turns) if delivery == "steer" else self._requests.append(Summarize())
            elif delivery == "steer":
                self._said[turns].append(text)
            elif delivery == "queue":
                self._requests.append(text)
            elif delivery == "stop":
                self._stops.add(turns)

    def steered(self) -> list[str]:
        return self._said.pop(self._turns, [])

    def summary_asked(self) -> Summarize | None:
        if self._turns not in self._summaries:
            return None
        self._summaries.discard(self._turns)
        return Summarize()

    async def next_request(self) -> str | Summarize | None:
        return self._requests.popleft() if self._requests else None

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def turn(self, work: Coroutine[Any, Any, T]) -> T:
        if self._turns in self._stops:
            self._stops.discard(self._turns)
            work.close()
            raise Stopped
        answer = await work
        self._turns += 1
        return answer


class RecordedApprover(Approver):
    """Rules on a call as it was ruled on."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._decided = {entry.data["call_id"]: entry.data for entry in session.of("approval")}

    async def rule(self, call: ToolCall, effect: Effect) -> Ruling:
        row = self._decided.get(call.id)
        if row is None:
            return Ruling(True)
        asked, decision = row["by"] == "user", row["decision"]
        return Ruling(decision != "denied", row.get("reason", ""), asked=asked, remembered=decision == "always")
