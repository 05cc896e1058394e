"""Anthropic messages: our messages as their JSON and back, for the side that asks and the side that answers.

Results of tools are blocks of a user message there, and messages of their own here. A malformed turn has no form there: it is
sent as the text it was. Thinking is sent back within a turn only with the maker's signature, which we don't keep: a client
leaves it out, a server sends it unsigned.
"""

from __future__ import annotations

import json
from typing import Any, Sequence

from etude.agent.policy.wire.anthropic_types import (
    AnthropicMessage,
    AnthropicTool,
    AnthropicUsage,
    Block,
    MessagesRequest,
    MessagesResponse,
    StopReason,
)
from etude.agent.policy.wire.errors import WireError
from etude.agent.policy.wire.placeholder import join_parts, placeholder
from etude.core.trace.completion import Completion, Finish, Usage
from etude.core.trace.message import CUT_OFF, FILTERED, Message, ToolCall
from etude.core.trace.plain_json import fault_of, plain
from etude.core.trace.unicode import whole


def request_messages(request: MessagesRequest) -> list[Message]:
    """The conversation that a client sends; an image or a document is a placeholder. Raises WireError for other blocks."""
    system = _text(request.system or "", "system")
    messages = [Message("system", whole(system))] if system else []
    for i, row in enumerate(request.messages):
        place = f"messages[{i}]"
        if row.role == "assistant":
            messages.append(_assistant(row, place))
        elif row.role == "system":
            messages.append(Message("system", whole(_text(row.content, place))))
        else:
            messages += _user(row, place)
    return messages


# Run by the maker's server, and offered in addition to the client's own: a model that doesn't see one can't call it.
HOSTED = ("web_search_", "web_fetch_", "code_execution_")


def request_tools(request: MessagesRequest) -> tuple[dict[str, Any], ...]:
    """The client's tools as JSON-schema functions. Raises WireError for tools without a schema."""
    hosted = hosted_tools(request)
    return tuple(_function(tool) for tool in request.tools or () if tool.type not in hosted)


def hosted_tools(request: MessagesRequest) -> tuple[str, ...]:
    """The types of the tools that the maker's server would have run."""
    return tuple(tool.type for tool in request.tools or () if tool.type and tool.type.startswith(HOSTED))


def to_wire(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A conversation as the fields `system`, `messages` and `tools` of a request."""
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    rows: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if rows and rows[-1]["role"] == role:
            rows[-1]["content"] += _blocks(message)
        else:
            rows.append({"role": role, "content": _blocks(message)})
    body: dict[str, Any] = {"messages": rows}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = [_tool(tool["function"]) for tool in tools]
    return body


def messages_response(answer: Completion, *, id: str, model: str) -> MessagesResponse:
    """The body that answers a client."""
    if answer.message is None:
        raise WireError("a completion of tokens alone has no wire form: parse it with the model's renderer first")
    return MessagesResponse(
        id=id,
        model=model,
        content=_answer_blocks(answer.message),
        stop_reason=stop_reason(answer),
        usage=anthropic_usage(answer.usage),
    )


def _answer_blocks(message: Message) -> list[Block]:
    blocks = [Block(type="thinking", thinking=message.thinking, signature="")] if message.thinking else []
    blocks += [Block(type="text", text=message.text)] if message.text else []
    return blocks + [Block(type="tool_use", id=call.id, name=call.name, input=call.arguments) for call in message.calls]


def stop_reason(answer: Completion) -> StopReason:
    """Why it ended, as this format says it."""
    if answer.message is not None and answer.message.problem == FILTERED:
        return "refusal"
    if answer.message is not None and answer.message.calls:
        return "tool_use"
    return "max_tokens" if answer.finish == "length" else "end_turn"


def anthropic_usage(usage: Usage) -> AnthropicUsage:
    """What it cost."""
    return AnthropicUsage(
        input_tokens=usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        cache_creation_input_tokens=usage.cache_write_tokens,
    )


def from_wire(body: dict[str, Any], seconds: float) -> Completion:
    """An answer as a completion. Raises pydantic's ValidationError if `body` is none."""
    answer = MessagesResponse.model_validate(body)
    finish: Finish = "length" if answer.stop_reason == "max_tokens" else "stop"
    message = _assistant(AnthropicMessage(role="assistant", content=answer.content), "content")
    if finish == "length" and not message.calls:
        message = Message("assistant", message.text, message.thinking, problem=CUT_OFF)
    if answer.stop_reason == "refusal":
        message = Message("assistant", message.text, message.thinking, problem=FILTERED)
    used = answer.usage
    read = used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens
    usage = Usage(read, used.cache_read_input_tokens, used.output_tokens, seconds, used.cache_creation_input_tokens)
    return Completion(message=message, finish=finish, usage=usage)


def _assistant(row: AnthropicMessage, place: str) -> Message:
    if isinstance(row.content, str):
        return Message("assistant", whole(row.content))
    said = [block for block in row.content if block.type not in ("thinking", "redacted_thinking", "tool_use")]
    text = whole(_text(said, place))
    thinking = whole("".join(block.thinking or "" for block in row.content if block.type == "thinking"))
    for block in row.content:
        broken = (block.model_extra or {}).get("partial_json")
        if block.type == "tool_use" and fault_of(block.input) is not None:
            broken = json.dumps(plain(block.input), ensure_ascii=False)
        if broken:
            problem = f"the arguments of {block.name} are no JSON object"
            return Message("assistant", f"{text}\n{broken}".strip(), thinking, problem=problem)
    calls = tuple(
        ToolCall(block.id or f"call-{i}", block.name or "", block.input or {})
        for i, block in enumerate(row.content)
        if block.type == "tool_use"
    )
    return Message("assistant", text, thinking, calls)


def _user(row: AnthropicMessage, place: str) -> list[Message]:
    """Results first, as the format demands, then what the user says."""
    if isinstance(row.content, str):
        return [Message("user", whole(row.content))]
    results = [
        Message("tool", whole(_text(block.content or "", f"{place}, tool_result")), call_id=block.tool_use_id)
        for block in row.content
        if block.type == "tool_result"
    ]
    said = [block for block in row.content if block.type != "tool_result"]
    return [*results, Message("user", whole(_text(said, place)))] if said or not results else results


def _text(content: str | list[Block], place: str) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content:
        text = block.text if block.type == "text" else placeholder(block.model_dump(exclude_none=True))
        if text is None:
            raise WireError(f"{place} holds a block of type {block.type!r}; only text can be sent there")
        texts.append(text)
    return join_parts(texts)


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool" and message.call_id is not None:
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}]
    # Empty text blocks are refused.
    text = message.text if message.text.strip() or message.calls else "(nothing)"
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text.strip() else []
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.calls
    ]


def _function(tool: AnthropicTool) -> dict[str, Any]:
    if tool.input_schema is None:
        raise WireError(f"the tool {tool.name} ({tool.type}) has no input_schema; declare it with one")
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": schema}
