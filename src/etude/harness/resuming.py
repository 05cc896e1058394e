"""What a session that is taken up again left open: calls of its last turn that never got an answer, because it was killed or done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.trace.message import Message, ToolCall
from etude.trace.session import Session

# Of an answer that no tool gave: what it would have reported is known to be nothing.
UNTOLD: Mapping[str, Any] = {"facts": {}}
INTERRUPTED = "interrupted: the session ended before this call did; look what it left behind before you repeat it"


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
