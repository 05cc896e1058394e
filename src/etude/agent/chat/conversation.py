"""Our messages as the `renderers` package takes them: OpenAI chat messages with thinking in a field next to the text.

Ids of calls: Kimi writes them into the tokens as functions.NAME:NUMBER and repeats them over each result. Ours must be unique
in a session, but a model may start to count again after a self-summary; so our own number is behind a `#` where it differs
from the model's, and is taken off here. Ids from other endpoints are renamed for such a format, calls and results alike.
"""

from __future__ import annotations

import re
from typing import Any, Sequence

from etude.agent.chat.renderer import RenderError
from etude.core.trace.message import Message, ToolCall

_NATIVE = re.compile(r"functions\.(?P<name>.+):\d+")


def call_id(native: str | None, number: int) -> str:
    """The id of a parsed call: what the format wrote, made unique; c<number> where it writes none."""
    if native is None:
        return f"c{number}"
    return native if native.endswith(f":{number}") and "#" not in native else f"{native}#{number}"


def native_id(call: ToolCall, number: int) -> str:
    """The id a Kimi format writes for the call that was made `number` calls after the first."""
    written = call.id.partition("#")[0]
    found = _NATIVE.fullmatch(written)
    return written if found and found["name"] == call.name else f"functions.{call.name}:{number}"


def package_messages(
    messages: Sequence[Message],
    *,
    call_ids: bool,
    thinks: bool = True,
    named: bool = False,
    first_call: int = 0,
    asked: Message | None = None,
) -> list[dict[str, Any]]:
    """Messages in order. `asked` is the turn before them, whose calls they may answer; `call_ids`, `thinks` and
    `named` (results carry the tool's name) say what the format has a place for."""
    known = {call.id: (call.name, native_id(call, first_call)) for call in (asked.calls if asked else ())}
    made = first_call
    rows: list[dict[str, Any]] = []
    for message in messages:
        for call in message.calls:
            known[call.id] = (call.name, native_id(call, made) if call_ids else call.id)
            made += 1
        rows.append(_row(message, known, thinks, named))
    return rows


def one_system(rows: Sequence[dict[str, Any]], *, first: bool) -> list[dict[str, Any]]:
    """For a format that allows a system message at the beginning only: those at the beginning are one, later ones are said by
    the user, as agents that know such a format do. `first`: the rows begin the conversation."""
    leading = next((i for i, row in enumerate(rows) if row["role"] != "system"), len(rows)) if first else 0
    head = [{**rows[0], "content": "\n\n".join(row["content"] for row in rows[:leading])}] if leading else []
    return [*head, *({**row, "role": "user"} if row["role"] == "system" else row for row in rows[leading:])]


def _row(message: Message, known: dict[str, tuple[str, str]], thinks: bool, named: bool) -> dict[str, Any]:
    if message.calls and message.role != "assistant":
        raise RenderError(f"a {message.role} message carries tool calls; only an assistant message may")
    row: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "assistant":
        if thinks:
            row["reasoning_content"] = message.thinking
        if message.calls:
            row["tool_calls"] = [
                {
                    "id": known[call.id][1],
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.calls
            ]
    if message.role == "tool":
        # The answer to a malformed turn belongs to no call; formats that write an id then write none.
        name, written = known.get(message.call_id or "", ("", message.call_id or ""))
        row["tool_call_id"] = written
        if named:
            row["name"] = name or "unknown"
    return row
