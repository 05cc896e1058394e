"""OpenAI responses: what a client sends as our messages, and our answers as items (`responses_stream.py`: as events).

A turn is several items there (thinking, text, each call) and one message here: consecutive items of the assistant are joined.
Stored conversations (`previous_response_id`) are the server's affair: a request that leans on one is refused here.
"""

from __future__ import annotations

from typing import Any

from etude.agent.policy.wire.errors import WireError
from etude.agent.policy.wire.placeholder import join_parts, placeholder
from etude.agent.policy.wire.responses_tools import Forms, call_item, call_message
from etude.agent.policy.wire.responses_types import (
    InputDetails,
    Response,
    ResponseItem,
    ResponsePart,
    ResponsesRequest,
    ResponsesUsage,
)
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message
from etude.core.trace.unicode import whole


def request_messages(request: ResponsesRequest) -> list[Message]:
    """The conversation that a client sends. Raises WireError for what has no words of ours: images, stored conversations."""
    if request.previous_response_id:
        raise WireError("previous_response_id leans on a stored conversation; send the whole input")
    messages = [Message("system", whole(request.instructions))] if request.instructions else []
    items = [ResponseItem(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    for i, item in enumerate(items):
        message = _message(item, f"input[{i}]")
        if message.role == "assistant" and messages and messages[-1].role == "assistant":
            message = _joined(messages.pop(), message)
        messages.append(message)
    return messages


def response(answer: Completion, *, id: str, model: str, created_at: int, forms: Forms | None = None) -> Response:
    """The body that answers a client. `created_at` is in Unix seconds; `forms` are those of the tools it declared."""
    message = answer.message
    if message is None:
        raise WireError("a completion of tokens alone has no wire form: parse it with the model's renderer first")
    items = [thinking_item(f"rs_{id}", message.thinking)] if message.thinking else []
    items += [text_item(f"msg_{id}", message.text)] if message.text else []
    items += [call_item(f"fc_{id}_{i}", call, forms or {}) for i, call in enumerate(message.calls)]
    return response_of(items, answer, id=id, model=model, created_at=created_at)


def response_of(items: list[ResponseItem], answer: Completion, *, id: str, model: str, created_at: int) -> Response:
    """A body of these items."""
    cut = answer.finish == "length"
    return Response(
        id=id,
        created_at=created_at,
        model=model,
        status="incomplete" if cut else "completed",
        incomplete_details={"reason": "max_output_tokens"} if cut else None,
        output=items,
        usage=_usage(answer.usage),
    )


def thinking_item(id: str, text: str) -> ResponseItem:
    """The turn's thinking."""
    return ResponseItem(type="reasoning", id=id, summary=[ResponsePart(type="summary_text", text=text)])


def text_item(id: str, text: str) -> ResponseItem:
    """The turn's text."""
    part = ResponsePart.model_validate({"type": "output_text", "text": text, "annotations": []})
    return ResponseItem(id=id, role="assistant", status="completed", content=[part])


# What clients look for in every answer, though we have nothing to say by it.
_ALWAYS = {"tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None}


def wire_form(body: Response, *, one_call: bool = False) -> dict[str, Any]:
    """An answer as it is sent: without the fields that say nothing, but with those that clients look for. `one_call`: the request asks for
    at most one tool call."""
    return {**_ALWAYS, "parallel_tool_calls": not one_call, **body.model_dump(exclude_none=True)}


def _usage(usage: Usage) -> ResponsesUsage:
    return ResponsesUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens),
    )


def _message(item: ResponseItem, place: str) -> Message:
    if item.type in ("function_call_output", "custom_tool_call_output"):
        return Message("tool", _text(item.output, place), call_id=item.call_id)
    if item.type == "reasoning":
        return Message("assistant", thinking=_text(item.summary, place))
    if item.type in ("function_call", "custom_tool_call"):
        return call_message(item, place)
    if item.type != "message" or item.role is None:
        raise WireError(f"{place} is an item of type {item.type!r}; only messages, calls and their outputs can be sent")
    return Message("system" if item.role == "developer" else item.role, _text(item.content, place))


def _joined(first: Message, then: Message) -> Message:
    problem = first.problem or then.problem
    text = "\n".join(part for part in (first.text, then.text) if part)
    calls = () if problem else (*first.calls, *then.calls)
    return Message("assistant", text, first.thinking + then.thinking, calls, problem=problem)


def _text(content: str | list[ResponsePart] | None, place: str) -> str:
    if not isinstance(content, list):
        return whole(content or "")
    texts: list[str] = []
    for part in content:
        text = placeholder(part.model_dump(exclude_none=True)) if part.text is None else part.text
        if text is None:
            raise WireError(f"{place} holds a part of type {part.type!r}; only text can be sent")
        texts.append(text)
    return whole(join_parts(texts))
