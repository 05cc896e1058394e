"""The user of a recorded session, for its replay: sends the same messages at the same turns, and makes the same decisions."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from etude.agent.harness.approval import ApprovalDecision, Approver, Effect
from etude.agent.harness.inbox import Inbox, SummaryRequest, TurnInterrupted
from etude.core.trace.message import ToolCall
from etude.core.trace.session import Session

T = TypeVar("T")


class RecordedInbox(Inbox):
    """The messages of a recorded session, by the number of turns taken before each.

    A stop during the policy's turn is repeated. The partial work of a stopped tool can't be repeated. A summary that the user requested
    is found by its query, which has a delivery (queue: the agent was idle); the words with it are steering messages.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._turns = 0  # taken so far in the replay; `unless_stopped` sees each one begin
        self._said: dict[int, list[str]] = defaultdict(list)
        self._requests: deque[str | SummaryRequest] = deque()
        self._stops: set[int] = set()
        self._summaries: set[int] = set()
        turns = 0
        for entry in session.of("message", "completion"):
            turns += entry.type == "completion"
            delivery, text = entry.data.get("delivery"), entry.data.get("text", "")
            if entry.data.get("summary") and delivery is not None:
                self._summaries.add(turns) if delivery == "steer" else self._requests.append(SummaryRequest())
            elif delivery == "steer":
                self._said[turns].append(text)
            elif delivery == "queue":
                self._requests.append(text)
            elif delivery == "stop":
                self._stops.add(turns)

    def steered(self) -> list[str]:
        return self._said.pop(self._turns, [])

    def summary_asked(self) -> SummaryRequest | None:
        if self._turns not in self._summaries:
            return None
        self._summaries.discard(self._turns)
        return SummaryRequest()

    async def next_request(self) -> str | SummaryRequest | None:
        return self._requests.popleft() if self._requests else None

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def turn(self, work: Coroutine[Any, Any, T]) -> T:
        if self._turns in self._stops:
            self._stops.discard(self._turns)
            work.close()
            raise TurnInterrupted
        answer = await work
        self._turns += 1
        return answer


class RecordedApprover(Approver):
    """Repeats the recorded decisions."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._decided = {entry.data["call_id"]: entry.data for entry in session.of("approval")}

    async def rule(self, call: ToolCall, effect: Effect) -> ApprovalDecision:
        row = self._decided.get(call.id)
        if row is None:
            return ApprovalDecision(True)
        asked, decision = row["by"] == "user", row["decision"]
        return ApprovalDecision(
            decision != "denied", row.get("reason", ""), asked=asked, remembered=decision == "always"
        )
