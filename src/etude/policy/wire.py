"""Our messages as OpenAI chat-completion JSON, and its answers as ours. Pure.

A malformed answer (arguments that are no JSON object, a turn cut off) becomes a message with `problem`: evidence, not an
error. Half a surrogate pair, which JSON can spell but UTF-8 can't, becomes U+FFFD here, before it can reach a file or a socket.
Thinking is read but not sent back: most endpoints refuse or ignore it in the history.
"""

from __future__ import annotations

import json
from typing import Any, Sequence

from etude.trace.completion import Completion, Finish, Usage
from etude.trace.message import Message, ToolCall


def to_wire(message: Message) -> dict[str, Any]:
    """One message. A tool result that answers no call (after a malformed turn) is said by the user."""
    if message.role == "tool":
        if message.call_id is None:
            return {"role": "user", "content": message.text}
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    # Some endpoints refuse an empty turn, which a model that was cut off while thinking leaves behind.
    empty = message.role == "assistant" and not message.text.strip() and not message.calls
    row: dict[str, Any] = {"role": message.role, "content": "(nothing)" if empty else message.text}
    if message.calls:
        row["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.calls
        ]
    return row


def from_wire(body: dict[str, Any], history: Sequence[Message], seconds: float) -> Completion:
    """The first choice of a chat completion. Raises KeyError, IndexError, TypeError or AttributeError if `body` is none."""
    choice = body["choices"][0]
    row = _whole(choice["message"])
    finish: Finish = "length" if choice.get("finish_reason") == "length" else "stop"
    text = _text(row.get("content"))
    thinking = row.get("reasoning_content") or row.get("reasoning") or ""
    seen = sum(len(message.calls) for message in history)
    calls, problems = _calls(row.get("tool_calls") or [], seen)
    if problems:
        raw = "\n".join(json.dumps(call.get("function")) for call in row["tool_calls"])
        message = Message("assistant", f"{text}\n{raw}".strip(), thinking, problem=problems[0])
    elif finish == "length" and not calls:
        message = Message("assistant", text, thinking, problem="the turn was cut off before its end")
    else:
        message = Message("assistant", text, thinking, tuple(calls))
    return Completion(message=message, finish=finish, usage=_usage(body.get("usage") or {}, seconds))


def _calls(rows: list[dict[str, Any]], seen: int) -> tuple[list[ToolCall], list[str]]:
    calls: list[ToolCall] = []
    problems: list[str] = []
    for i, row in enumerate(rows):
        function = row.get("function") or {}
        name = str(function.get("name") or "")
        try:
            given = function.get("arguments") or "{}"
            arguments = _whole(
                json.loads(given) if isinstance(given, str) else given
            )  # some servers parse them already
        except (ValueError, RecursionError):  # brackets nested without end are a model's doing like any other slip
            arguments = None
        if isinstance(arguments, dict):
            calls.append(ToolCall(row.get("id") or f"call-{seen + i}", name, arguments))
        else:
            problems.append(f"the arguments of {name or 'a call'} are no JSON object")
    return calls, problems


def _whole(value: Any) -> Any:
    """JSON values without lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {_whole(key): _whole(item) for key, item in value.items()} if isinstance(value, dict) else value


def _text(content: Any) -> str:
    """Text, whether it came as a string, as parts, or not at all."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content or ""


def _usage(row: dict[str, Any], seconds: float) -> Usage:
    details = row.get("prompt_tokens_details") or {}
    return Usage(
        input_tokens=row.get("prompt_tokens") or 0,
        cached_tokens=details.get("cached_tokens") or 0,
        output_tokens=row.get("completion_tokens") or 0,
        seconds=seconds,
    )
