"""OpenAI chat completions: answers and requests as our messages, and our answers as their JSON (`outgoing.py`: our requests).

A malformed answer (arguments that are no JSON object, a turn cut off) becomes a message with `problem`: evidence, not an
error. Half a surrogate pair, which JSON can spell but UTF-8 can't, becomes U+FFFD here, before it can reach a file or a socket.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Sequence

from etude.agent.policy.wire.chat_types import (
    ChatCall,
    ChatChoice,
    ChatCompletion,
    ChatFinish,
    ChatFunction,
    ChatMessage,
    ChatRequest,
    ChatUsage,
    ChatUsageDetails,
)
from etude.agent.policy.wire.errors import WireError
from etude.agent.policy.wire.opaque import THINKING_FIELDS, fields_of_call, fields_of_turn
from etude.agent.policy.wire.parts import is_plain, text_of, thinking_of
from etude.agent.policy.wire.placeholder import join_parts, placeholder
from etude.agent.policy.wire.token_fields import read_tokens
from etude.core.trace.completion import Completion, Finish, Usage
from etude.core.trace.message import CUT_OFF, FAILED, FILTERED, Message, ToolCall
from etude.core.trace.plain_json import fault_of, parse, plain
from etude.core.trace.unicode import whole

# Parts of an answer that come back without a text: thinking has another field.
_SAY_NOTHING = ("text", "thinking", "reasoning")
# Why a provider ends a turn that is no answer, in the words of OpenAI, Gemini, Zhipu and gateways to others.
_FILTERS = "content_filter safety recitation prohibited_content blocklist spii sensitive content_policy_violation"
_UNFINISHED = {**dict.fromkeys(_FILTERS.split(), FILTERED), **dict.fromkeys(("error", "network_error"), FAILED)}


def from_wire(body: dict[str, Any], history: Sequence[Message], seconds: float, provider: str = "") -> Completion:
    """The first choice of a chat completion that `provider` sent. Raises KeyError, IndexError, TypeError or AttributeError if
    `body` is none, and WireError where its token fields contradict each other."""
    choice = body["choices"][0]
    calls = choice["message"].get("tool_calls") or []  # as they came: what is wrong with their arguments is to be found
    row = whole(plain(choice["message"]))
    finish: Finish = "length" if choice.get("finish_reason") == "length" else "stop"
    # A refusal is an answer of the model, in another field.
    text, thinking = text_of(row.get("content")) or text_of(row.get("refusal")), _thinking(row)
    seen = sum(len(message.calls) for message in history)
    message = _assistant(text, thinking, calls, seen)
    if (problem := _UNFINISHED.get(str(choice.get("finish_reason")).lower())) is not None:
        message = Message("assistant", _said(text, calls), thinking, problem=problem)
    if finish == "length" and not message.calls and message.problem is None:
        message = Message("assistant", text, thinking, problem=CUT_OFF)
    message = _provided(message, row, provider) if provider else message
    usage = _usage(body.get("usage") or {}, seconds)
    prompt, tokens = read_tokens(body, choice) or ((), None)
    return Completion(message=message, tokens=tokens, finish=finish, usage=usage, prompt_ids=prompt)


def _thinking(row: dict[str, Any]) -> str:
    """A turn's thinking, under whichever name it came."""
    texts = (row.get(name) for name in THINKING_FIELDS)
    return next((text for text in texts if text and isinstance(text, str)), "") or thinking_of(row.get("content"))


def _provided(message: Message, row: dict[str, Any], provider: str) -> Message:
    """The turn with what only its provider understands."""
    opaque = fields_of_turn(row)
    same = tuple(name for name in THINKING_FIELDS if name in opaque and opaque[name] == message.thinking)
    opaque = {key: value for key, value in opaque.items() if key not in same}
    if message.problem is None and not is_plain(row.get("content")):
        opaque["content"] = row["content"]
    return replace(message, provider=provider, thinking_fields=same, opaque=opaque)


def request_messages(request: ChatRequest) -> list[Message]:
    """The conversation that a client sends; a picture or a sound is a placeholder. Raises WireError for other parts than text."""
    messages: list[Message] = []
    made = 0
    for i, row in enumerate(request.messages):
        text = whole(_plain(row, i))
        if row.role in ("system", "developer"):
            messages.append(Message("system", text))
        elif row.role == "user":
            messages.append(Message("user", text))
        elif row.role == "tool":
            messages.append(Message("tool", text, call_id=row.tool_call_id))
        else:
            calls = [call.model_dump() for call in row.tool_calls or []]
            messages.append(_assistant(text, whole(row.reasoning_content or row.reasoning or ""), calls, made))
            made += len(messages[-1].calls)
    return messages


def chat_completion(answer: Completion, *, id: str, model: str, created: int) -> ChatCompletion:
    """The body that answers a client. `created` is in Unix seconds. A malformed turn is sent as its text."""
    message = _message(answer)
    said = ChatMessage(
        role="assistant",
        content=message.text or None,
        reasoning_content=message.thinking or None,
        tool_calls=[wire_call(call) for call in message.calls] or None,
    )
    choice = ChatChoice(message=said, finish_reason=finish_reason(answer))
    return ChatCompletion(id=id, created=created, model=model, choices=[choice], usage=chat_usage(answer.usage))


def wire_call(call: ToolCall, index: int | None = None) -> ChatCall:
    """One call; `index` in streams."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return ChatCall(id=call.id, function=ChatFunction(name=call.name, arguments=arguments), index=index)


def finish_reason(answer: Completion) -> ChatFinish:
    """Why it ended, as this format says it."""
    message = _message(answer)
    if message.problem == FILTERED:
        return "content_filter"
    if message.calls:
        return "tool_calls"
    return "length" if answer.finish == "length" else "stop"


def chat_usage(usage: Usage) -> ChatUsage:
    """What it cost."""
    return ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        prompt_tokens_details=ChatUsageDetails(cached_tokens=usage.cached_tokens),
    )


def _message(answer: Completion) -> Message:
    if answer.message is None:
        raise WireError("a completion of tokens alone has no wire form: parse it with the model's renderer first")
    return answer.message


def _plain(row: ChatMessage, place: int) -> str:
    if not isinstance(row.content, list):
        return row.content or ""
    texts: list[str] = []
    for part in row.content:
        text = placeholder(part.model_dump(exclude_none=True)) if part.text is None else part.text
        if text is None and part.type not in _SAY_NOTHING:
            raise WireError(f"messages[{place}] holds a part of type {part.type!r}; only text can be sent")
        texts.append(text or "")
    return join_parts(texts)


def _assistant(text: str, thinking: str, rows: list[dict[str, Any]], seen: int) -> Message:
    """A turn; one with a broken call keeps all calls as text."""
    calls, problems = _calls(rows, seen)
    if not problems:
        return Message("assistant", text, thinking, tuple(calls))
    return Message("assistant", _said(text, rows), thinking, problem=problems[0])


def _said(text: str, rows: list[dict[str, Any]]) -> str:
    """A turn whose calls can't be run: they stay as text."""
    raw = "\n".join(json.dumps(plain(call.get("function"))) for call in rows)
    return f"{text}\n{raw}".strip()


def _calls(rows: list[dict[str, Any]], seen: int) -> tuple[list[ToolCall], list[str]]:
    calls: list[ToolCall] = []
    problems: list[str] = []
    for i, row in enumerate(rows):
        function = row.get("function") or {}
        name = str(function.get("name") or "")
        try:
            given = function.get("arguments") or "{}"
            arguments = parse(given) if isinstance(given, str) else given  # some servers parse them already
        except ValueError:  # brackets nested without end are a model's doing like any other slip
            arguments = None
        if isinstance(arguments, dict) and fault_of(arguments) is None:
            calls.append(ToolCall(str(row.get("id") or f"call-{seen + i}"), name, arguments, fields_of_call(row)))
        else:
            problems.append(f"the arguments of {name or 'a call'} are no JSON object")
    return calls, problems


def _usage(row: dict[str, Any], seconds: float) -> Usage:
    details = row.get("prompt_tokens_details") or {}
    return Usage(
        input_tokens=_count(row.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")),
        output_tokens=_count(row.get("completion_tokens")),
        seconds=seconds,
        # Not in OpenAI's own answers, which charge nothing for it; gateways to others say it in one of these two places.
        cache_write_tokens=_count(details.get("cache_write_tokens") or row.get("cache_creation_input_tokens")),
    )


def _count(value: Any) -> int:
    """A number of tokens; what is none counts as not reported."""
    return value if isinstance(value, int) and value > 0 else 0
