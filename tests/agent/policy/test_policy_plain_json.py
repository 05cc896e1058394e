"""What no other reader takes (NaN, 1e999, nesting without end) is a malformed call, or is left out of what goes back; every dialect, both
directions, streamed or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etude.agent.policy.openai import OpenAIPolicy
from etude.agent.policy.protocol import Request
from etude.agent.policy.refusal import error_words, read_refusal, status_of
from etude.agent.policy.wire import anthropic, chat, responses
from etude.agent.policy.wire.anthropic_stream import MessagesAssembly
from etude.agent.policy.wire.anthropic_types import MessagesRequest
from etude.agent.policy.wire.chat_assembly import ChatAssembly
from etude.agent.policy.wire.chat_types import ChatRequest
from etude.agent.policy.wire.outgoing import Outgoing
from etude.agent.policy.wire.responses_types import ResponsesRequest
from etude.core.trace.message import Message, ToolCall

DEEP = "[" * 150 + "]" * 150
# Arguments as texts: JSON to Python's reader, and to no other.
TEXTS = ['{"t": NaN}', '{"t": [1, -Infinity]}', '{"t": 1e999}', '{"t": ' + DEEP + "}"]
NAMES = ["nan", "infinity", "too large", "deep"]


def chat_body(arguments: Any) -> dict[str, Any]:
    call = {"id": "k", "type": "function", "function": {"name": "view", "arguments": arguments}}
    return {
        "choices": [
            {"message": {"role": "assistant", "content": "look", "tool_calls": [call]}, "finish_reason": "stop"}
        ]
    }


def streamed(arguments: Any) -> dict[str, Any]:
    assembly = ChatAssembly()
    for choice in chat_body(arguments)["choices"]:
        assembly.add({"choices": [{"delta": choice["message"], "finish_reason": "stop"}]})
    return assembly.body()


def messages_body(arguments: dict[str, Any]) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "k", "name": "view", "input": arguments}
    return {"id": "m", "model": "x", "content": [{"type": "text", "text": "look"}, block], "stop_reason": "tool_use"}


def messages_streamed(text: str) -> dict[str, Any]:
    assembly = MessagesAssembly()
    assembly.add({"type": "message_start", "message": {"id": "m", "model": "x"}})
    block = {"type": "tool_use", "id": "k", "name": "view", "input": {}}
    assembly.add({"type": "content_block_start", "index": 0, "content_block": block})
    assembly.add(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}
    )
    assembly.add({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    return assembly.body()


def read(dialect: str, text: str) -> Message | None:
    """The turn that a dialect's reader makes of a call with these arguments."""
    value = json.loads(text)
    if dialect == "chat":
        return chat.from_wire(chat_body(text), [], 0.0, "p").message
    if dialect == "chat, parsed":
        return chat.from_wire(chat_body(value), [], 0.0, "p").message
    if dialect == "chat, streamed":
        return chat.from_wire(streamed(text), [], 0.0, "p").message
    if dialect == "chat, streamed and parsed":
        return chat.from_wire(streamed(value), [], 0.0, "p").message
    if dialect == "chat, from a client":
        row = chat_body(text)["choices"][0]["message"]
        return chat.request_messages(ChatRequest.model_validate({"model": "m", "messages": [row]}))[0]
    if dialect == "anthropic":
        return anthropic.from_wire(messages_body(value), 0.0).message
    if dialect == "anthropic, streamed":
        return anthropic.from_wire(messages_streamed(text), 0.0).message
    if dialect == "anthropic, from a client":
        row = {"role": "assistant", "content": messages_body(value)["content"]}
        body = {"model": "m", "max_tokens": 5, "messages": [row]}
        return anthropic.request_messages(MessagesRequest.model_validate(body))[0]
    item = {"type": "function_call", "call_id": "k", "name": "view", "arguments": text}
    return responses.request_messages(ResponsesRequest.model_validate({"model": "m", "input": [item]}))[0]


DIALECTS = [
    "chat", "chat, parsed", "chat, streamed", "chat, streamed and parsed", "chat, from a client", "anthropic",
    "anthropic, streamed", "anthropic, from a client", "responses",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=NAMES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_arguments_that_no_other_reader_takes_are_a_malformed_turn(dialect: str, text: str) -> None:
    message = read(dialect, text)
    assert message is not None and message.problem == "the arguments of view are no JSON object" and not message.calls
    json.dumps(message.to_json(), allow_nan=False)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_finite_arguments_are_read_as_they_are(dialect: str) -> None:
    message = read(dialect, '{"t": [1.5, {"a": 1e300}]}')
    assert message is not None and [call.arguments for call in message.calls] == [{"t": [1.5, {"a": 1e300}]}]


@pytest.mark.parametrize("value", ["NaN", "1e999", DEEP], ids=["nan", "too large", "deep"])
def test_what_an_endpoint_adds_to_a_turn_goes_back_as_json(value: str) -> None:
    body = json.loads(
        json.dumps(chat_body("{}")).replace('"content": "look"', f'"content": "look", "x_logp": [0.5, {value}]')
    )
    body["choices"][0]["message"]["tool_calls"][0]["x_score"] = json.loads(value)
    message = chat.from_wire(body, [], 0.0, "p").message
    assert message is not None and message.opaque["x_logp"][0] == 0.5
    rows = Outgoing("p").rows([message])
    assert json.loads(json.dumps(rows, allow_nan=False))[0]["x_logp"][0] == 0.5


def test_a_tool_whose_schema_holds_nan_is_sent_without_it() -> None:
    tool = {"type": "function", "function": {"name": "t", "parameters": {"default": float("nan")}}}
    policy = OpenAIPolicy("m", base_url="http://127.0.0.1:9/v1")
    body = policy._body(Request("s", (Message("user", "hi"),), (tool,)), None, Outgoing())
    assert json.loads(json.dumps(body, allow_nan=False))["tools"][0]["function"]["parameters"] == {"default": None}


def test_a_call_of_an_older_session_goes_out_as_json() -> None:
    call = ToolCall("k", "view", {"t": float("inf")})
    assert (
        Outgoing().rows([Message("assistant", calls=(call,))])[0]["tool_calls"][0]["function"]["arguments"]
        == '{"t": null}'
    )


def test_an_error_nested_without_end_is_still_an_error() -> None:
    text = '{"error": {"code": ' + "[" * 900 + "]" * 900 + ', "message": "no"}}'
    assert error_words(text) == "no" and status_of(json.loads(text)) == 502
    assert read_refusal(400, text, asked_tokens=9).kind == "other"
    assert error_words('{"error": ' + "[" * 900 + "]" * 900 + "}")
