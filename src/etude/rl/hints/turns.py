"""A session's turns with their calls and the answers that these got: what hints are read from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from etude.agent.metrics import facts as fact
from etude.core.trace.entry import Entry
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Session


@dataclass(frozen=True)
class AnsweredCall:
    """One call and its answer."""

    call: ToolCall
    text: str = ""
    failed: bool = False
    facts: dict[str, float] = field(default_factory=dict)
    reads: tuple[str, ...] = ()

    @property
    def malformed(self) -> bool:
        """It was refused before it ran."""
        return bool(self.facts.get(fact.MALFORMED))


@dataclass(frozen=True)
class HintTurn:
    """One answer of the policy; `entry` is its completion's number in the session."""

    entry: int
    message: Message
    calls: tuple[AnsweredCall, ...]


def turns_of(session: Session) -> Iterator[HintTurn]:
    """In order, self-summaries left aside. A call that was never answered is left out."""
    answers: dict[str, list[Entry]] = {}
    for entry in reversed(session.of("tool_result")):
        answers.setdefault(entry.data.get("call_id") or "", []).append(entry)
    summary = False
    for entry in session.of("message", "completion"):
        if entry.type == "message":
            summary = bool(entry.data.get("summary"))
            continue
        message = Message.from_json(entry.data.get("message") or {"role": "assistant", "text": ""})
        if not summary:
            called = [_called(call, answers[call.id].pop()) for call in message.calls if answers.get(call.id)]
            yield HintTurn(entry.id, message, tuple(called))
        summary = False


def _called(call: ToolCall, answer: Entry) -> AnsweredCall:
    data: dict[str, Any] = answer.data
    failed = bool(data["failed"])
    recorded = data.get("facts")
    facts = dict(fact.assumed(call, failed=failed) if recorded is None else recorded)
    return AnsweredCall(call, data.get("text", ""), failed, facts, tuple(data.get("reads", ())))
