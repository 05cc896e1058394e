"""OpenAI responses: what a client sends as our messages, and our answers as items and as events.

A turn is several items there (thinking, text, each call) and one message here: consecutive items of the assistant are joined.
Stored conversations (`previous_response_id`) are the server's affair: a request that leans on one is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from etude.policy.wire.errors import WireError
from etude.policy.wire.responses_types import (
    InputDetails,
    Response,
    ResponseItem,
    ResponsePart,
    ResponsesRequest,
    ResponsesUsage,
)
from etude.trace.completion import Completion, Usage
from etude.trace.message import Message, ToolCall
from etude.trace.unicode import whole


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


def request_tools(request: ResponsesRequest) -> tuple[dict[str, Any], ...]:
    """The client's functions as JSON-schema functions. Raises WireError for tools that the server would have to run."""
    functions: list[dict[str, Any]] = []
    for tool in request.tools or []:
        if tool.get("type") != "function":
            raise WireError(f"a tool of type {tool.get('type')!r} would run on the server; declare functions")
        parameters = tool.get("parameters") or {"type": "object", "properties": {}}
        body = {"name": tool["name"], "description": tool.get("description") or "", "parameters": parameters}
        functions.append({"type": "function", "function": body})
    return tuple(functions)


def response(answer: Completion, *, id: str, model: str, created_at: int) -> Response:
    """The body that answers a client. `created_at` is in Unix seconds."""
    if answer.message is None:
        raise WireError("a completion of tokens alone has no wire form: parse it with the model's renderer first")
    cut = answer.finish == "length"
    return Response(
        id=id,
        created_at=created_at,
        model=model,
        status="incomplete" if cut else "completed",
        incomplete_details={"reason": "max_output_tokens"} if cut else None,
        output=_items(answer.message, id),
        usage=_usage(answer.usage),
    )


# What clients look for in every answer, though we have nothing to say by it.
_ALWAYS = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None}


def wire_form(body: Response) -> dict[str, Any]:
    """An answer as it is sent: without the fields that say nothing, but with those that clients look for."""
    return {**_ALWAYS, **body.model_dump(exclude_none=True)}


def events(body: Response) -> Iterator[dict[str, Any]]:
    """An answer that is there already, as the events of a stream, each with its `type` and `sequence_number`."""
    for number, event in enumerate(_events(body)):
        yield {**event, "sequence_number": number}


def _events(body: Response) -> Iterator[dict[str, Any]]:
    begun = body.model_copy(update={"status": "in_progress", "output": [], "usage": None, "incomplete_details": None})
    yield {"type": "response.created", "response": wire_form(begun)}
    yield {"type": "response.in_progress", "response": wire_form(begun)}
    for index, item in enumerate(body.output):
        row = item.model_dump(exclude_none=True)
        empty = {**row, "status": "in_progress"}
        empty |= {key: type(row[key])() for key in ("content", "summary", "arguments") if key in row}
        yield {"type": "response.output_item.added", "output_index": index, "item": empty}
        for event in _pieces(item):
            yield {**event, "output_index": index, "item_id": item.id}
        yield {"type": "response.output_item.done", "output_index": index, "item": row}
    end = "response.incomplete" if body.status == "incomplete" else "response.completed"
    yield {"type": end, "response": wire_form(body)}


def _pieces(item: ResponseItem) -> Iterator[dict[str, Any]]:
    if item.type == "function_call":
        name = "response.function_call_arguments"
        yield {"type": f"{name}.delta", "delta": item.arguments}
        yield {"type": f"{name}.done", "name": item.name, "arguments": item.arguments}
    elif item.type == "reasoning":
        yield from _part("response.reasoning_summary", {"summary_index": 0}, (item.summary or [])[0])
    elif isinstance(item.content, list):
        yield from _part("response.output", {"content_index": 0}, item.content[0])


def _part(name: str, at: dict[str, int], part: ResponsePart) -> Iterator[dict[str, Any]]:
    """One part of a text: it begins, grows and ends."""
    kind = "response.content_part" if "content_index" in at else "response.reasoning_summary_part"
    odds = {"logprobs": []} if "content_index" in at else {}
    row = part.model_dump(exclude_none=True)
    yield {"type": f"{kind}.added", **at, "part": {**row, "text": ""}}
    yield {"type": f"{name}_text.delta", **at, **odds, "delta": part.text}
    yield {"type": f"{name}_text.done", **at, **odds, "text": part.text}
    yield {"type": f"{kind}.done", **at, "part": row}


def _items(message: Message, id: str) -> list[ResponseItem]:
    items: list[ResponseItem] = []
    if message.thinking:
        summary = [ResponsePart(type="summary_text", text=message.thinking)]
        items.append(ResponseItem(type="reasoning", id=f"rs_{id}", summary=summary))
    if message.text:
        text = ResponsePart.model_validate({"type": "output_text", "text": message.text, "annotations": []})
        items.append(ResponseItem(id=f"msg_{id}", role="assistant", status="completed", content=[text]))
    for i, call in enumerate(message.calls):
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        items.append(
            ResponseItem(
                type="function_call", id=f"fc_{id}_{i}", call_id=call.id, name=call.name, arguments=arguments,
                status="completed",
            )
        )  # fmt: skip
    return items


def _usage(usage: Usage) -> ResponsesUsage:
    return ResponsesUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens),
    )


def _message(item: ResponseItem, place: str) -> Message:
    if item.type == "function_call_output":
        return Message("tool", _text(item.output, place), call_id=item.call_id)
    if item.type == "reasoning":
        return Message("assistant", thinking=_text(item.summary, place))
    if item.type == "function_call":
        return _call(item, place)
    if item.type != "message" or item.role is None:
        raise WireError(f"{place} is an item of type {item.type!r}; only messages, calls and their outputs can be sent")
    return Message("system" if item.role == "developer" else item.role, _text(item.content, place))


def _call(item: ResponseItem, place: str) -> Message:
    try:
        arguments = whole(json.loads(item.arguments or "{}"))
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        problem = f"the arguments of {item.name} are no JSON object"
        return Message("assistant", whole(item.arguments or ""), problem=problem)
    if not item.call_id or not item.name:
        raise WireError(f"{place} is a function_call without call_id or name")
    return Message("assistant", calls=(ToolCall(item.call_id, item.name, arguments),))


def _joined(first: Message, then: Message) -> Message:
    problem = first.problem or then.problem
    text = "\n".join(part for part in (first.text, then.text) if part)
    calls = () if problem else (*first.calls, *then.calls)
    return Message("assistant", text, first.thinking + then.thinking, calls, problem=problem)


def _text(content: str | list[ResponsePart] | None, place: str) -> str:
    for part in content if isinstance(content, list) else ():
        if part.text is None:
            raise WireError(f"{place} holds a part of type {part.type!r}; only text can be sent")
    return whole(content if isinstance(content, str) else "".join(part.text or "" for part in content or ()))
