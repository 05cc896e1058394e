"""What a session that is taken up again left open: calls of its last turn that never got an answer, because it was killed or done;
and what is not as it was: a harness that is another by now goes on with the session, and the session says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etude.agent.harness.presets.preset import hash_of
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Session

# Of an answer that no tool gave: what it would have reported is known to be nothing.
UNTOLD: Mapping[str, Any] = {"facts": {}}
INTERRUPTED = "interrupted: the session ended before this call did; look what it left behind before you repeat it"


@dataclass(frozen=True)
class Changed:
    """`data` is what the session's `harness` entry holds; `offers`: other tools than before are on offer."""

    data: dict[str, Any]
    offers: bool


def changed_harness(session: Session, facts: dict[str, Any]) -> Changed | None:
    """How the harness with these facts differs from the one that the session was held with last; None if it doesn't."""
    turns = session.of("harness")
    before = (
        turns[-1].data if turns else {"harness": session.header.harness, "harness_facts": session.header.harness_facts}
    )
    now = hash_of(facts)
    if now == before["harness"]:
        return None
    offers = before["harness_facts"].get("schemas") != facts["schemas"]
    return Changed({"harness": now, "harness_facts": facts}, offers)


def open_answers(session: Session) -> list[tuple[ToolCall, Message]]:
    """Each open call with what it is answered with: a model's format asks for one answer to each call."""
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
