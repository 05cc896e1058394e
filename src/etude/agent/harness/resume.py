"""State of a resumed session: the unanswered calls of its last turn, after a kill or `done`, and a changed harness, which is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etude.agent.harness.presets.preset import hash_of
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Session

# The facts of an answer that no tool gave.
NO_FACTS: Mapping[str, Any] = {"facts": {}}
INTERRUPTED = "interrupted: the session ended before this call did; look what it left behind before you repeat it"


@dataclass(frozen=True)
class HarnessChange:
    """`data` is the content of the session's `harness` entry. `offers`: the offered tools changed."""

    data: dict[str, Any]
    offers: bool


def changed_harness(session: Session, facts: dict[str, Any]) -> HarnessChange | None:
    """How the harness with these facts differs from the last one of the session; None if it is the same."""
    turns = session.of("harness")
    before = (
        turns[-1].data if turns else {"harness": session.header.harness, "harness_facts": session.header.harness_facts}
    )
    now = hash_of(facts)
    if now == before["harness"]:
        return None
    offers = before["harness_facts"].get("schemas") != facts["schemas"]
    return HarnessChange({"harness": now, "harness_facts": facts}, offers)


def open_answers(session: Session) -> list[tuple[ToolCall, Message]]:
    """Each unanswered call with an answer, because a chat format needs one answer to each call."""
    turns = session.of("completion")
    if not turns:
        return []
    calls = Message.from_json(turns[-1].data["message"]).calls
    answered = {entry.data.get("call_id") for entry in session.of("tool_result") if entry.id > turns[-1].id}
    return [
        (call, Message("tool", "ok" if call.name == "done" else INTERRUPTED, call_id=call.id))
        for call in calls
        if call.id not in answered
    ]
