"""An agent that asks for no parallel calls gets at most one tool call in an answer: the first one that the model made.

OpenAI's formats ask by `parallel_tool_calls: false`, Anthropic's by `tool_choice.disable_parallel_tool_use: true`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from captured import BASH, Endpoint, Serve, TokenPolicy  # pyright: ignore[reportMissingImports]

from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.policy.wire.sse import EventReader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.reader import read_session

FUNCTION = BASH["function"]
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
Body = dict[str, Any]


def looks_twice(request: Request) -> Message:
    """Two calls at once, then an answer."""
    if any(message.role == "tool" for message in request.messages):
        return Message("assistant", "Done.")
    calls = (ToolCall("a", "bash", {"command": "ls"}), ToolCall("b", "bash", {"command": "pwd"}))
    return Message("assistant", "I look.", calls=calls)


def request_of(wire: str, one_call: bool | None, stream: bool = False) -> Body:
    body: Body = {"model": "m", "stream": stream}
    if wire == "messages":
        tool = {"name": "bash", "input_schema": FUNCTION["parameters"]}
        choice = {} if one_call is None else {"tool_choice": {"type": "auto", "disable_parallel_tool_use": one_call}}
        return {**body, "max_tokens": 99, "messages": [{"role": "user", "content": "Go"}], "tools": [tool], **choice}
    flag = {} if one_call is None else {"parallel_tool_calls": not one_call}
    if wire == "chat":
        return {**body, "messages": [{"role": "user", "content": "Go"}], "tools": [BASH], **flag}
    tool = {"type": "function", "name": "bash", "parameters": FUNCTION["parameters"]}
    return {**body, "input": [{"role": "user", "content": "Go"}], "tools": [tool], **flag}


async def commands(endpoint: Endpoint, key: str, wire: str, body: Body) -> list[str]:
    """The commands of the bash calls in the answer, read as a client of the format does."""
    headers = {"authorization": f"Bearer {key}"}
    if not body["stream"]:
        got = await endpoint.http.post(PATHS[wire], json=body, headers=headers)
        assert got.status_code == 200, got.text
        return [json.loads(text)["command"] for text in whole_calls(wire, got.json())]
    texts: dict[Any, str] = {}
    reader = EventReader()
    async with endpoint.http.stream("POST", PATHS[wire], json=body, headers=headers) as got:
        async for piece in got.aiter_bytes():
            for event in reader.feed(piece):
                for index, part in [] if event.data == "[DONE]" else streamed_calls(wire, json.loads(event.data)):
                    texts[index] = texts.get(index, "") + part
    return [json.loads(text)["command"] for text in texts.values()]


def whole_calls(wire: str, answer: Body) -> list[str]:
    if wire == "chat":
        return [call["function"]["arguments"] for call in answer["choices"][0]["message"]["tool_calls"]]
    if wire == "messages":
        return [json.dumps(block["input"]) for block in answer["content"] if block["type"] == "tool_use"]
    return [item["arguments"] for item in answer["output"] if item["type"] == "function_call"]


def streamed_calls(wire: str, event: Body) -> list[tuple[Any, str]]:
    """(which call, a piece of its arguments) of one event."""
    if wire == "chat":
        calls = [call for choice in event["choices"] for call in choice["delta"].get("tool_calls") or ()]
        return [(call["index"], call["function"].get("arguments", "")) for call in calls]
    if wire == "messages":
        delta = event.get("delta", {})
        return [(event["index"], delta["partial_json"])] if delta.get("type") == "input_json_delta" else []
    return [(event["item_id"], event["delta"])] if event["type"] == "response.function_call_arguments.delta" else []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", PATHS)
async def test_one_call_is_delivered_where_one_is_asked_for_and_all_of_them_otherwise(
    served: Serve, wire: str, stream: bool
) -> None:
    async with served(ScriptedPolicy(looks_twice)) as endpoint:
        for one_call, expected in ((True, ["ls"]), (False, ["ls", "pwd"]), (None, ["ls", "pwd"])):
            _, key = await endpoint.session()
            assert await commands(endpoint, key, wire, request_of(wire, one_call, stream)) == expected


@pytest.mark.parametrize("wire", PATHS)
async def test_a_flag_that_is_no_boolean_is_refused_by_name(served: Serve, wire: str) -> None:
    async with served(ScriptedPolicy(looks_twice)) as endpoint:
        _, key = await endpoint.session()
        body = request_of(wire, True)
        if wire == "messages":
            body["tool_choice"]["disable_parallel_tool_use"] = "yes"
        else:
            body["parallel_tool_calls"] = "no"
        got = await endpoint.http.post(PATHS[wire], json=body, headers={"authorization": f"Bearer {key}"})
    assert got.status_code == 400 and "must be true or false" in got.text and "parallel_tool" in got.text


async def test_an_answer_with_one_call_or_none_is_delivered_as_it_is(served: Serve) -> None:
    async with served(ScriptedPolicy([Message("assistant", "Nothing to do.")])) as endpoint:
        session, key = await endpoint.session()
        headers = {"authorization": f"Bearer {key}"}
        got = await endpoint.http.post(PATHS["chat"], json=request_of("chat", True), headers=headers)
        assert got.json()["choices"][0]["message"]["content"] == "Nothing to do."
        await session.end()
    assert "foreign" not in read_session(session.path).of("completion")[0].data


async def test_the_responses_format_repeats_what_was_asked(served: Serve) -> None:
    async with served(ScriptedPolicy(looks_twice)) as endpoint:
        for one_call in (True, False):
            _, key = await endpoint.session()
            headers = {"authorization": f"Bearer {key}"}
            got = await endpoint.http.post(PATHS["responses"], json=request_of("responses", one_call), headers=headers)
            assert got.json()["parallel_tool_calls"] is not one_call


def answered(body: Body, arguments: str) -> Body:
    """The agent's next request: its history holds the one call that it got, and the result."""
    call = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": arguments}}
    turn = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "a", "content": "a.py"}
    return {**body, "messages": [*body["messages"], turn, result]}


async def test_the_session_goes_on_from_the_call_that_was_delivered_and_keeps_the_others(served: Serve) -> None:
    async with served(ScriptedPolicy(looks_twice)) as endpoint:
        session, key = await endpoint.session()
        headers = {"authorization": f"Bearer {key}"}
        body = request_of("chat", True)
        for sent in (body, answered(body, '{"command": "ls"}')):
            got = await endpoint.http.post(PATHS["chat"], json=sent, headers=headers)
        assert got.json()["choices"][0]["message"]["content"] == "Done."
        summary = await session.end()
    assert (summary["turns"], summary["branches"], summary["calls"]) == (2, 1, 1)
    turn = read_session(session.path).of("completion")[0].data
    assert [call["arguments"] for call in turn["message"]["calls"]] == [{"command": "ls"}]
    assert [call["arguments"] for call in turn["foreign"]["undelivered_calls"]] == [{"command": "pwd"}]


async def test_sampled_tokens_stay_whole_and_the_next_request_is_another_branch(
    served: Serve, make_renderer: Callable[..., Any]
) -> None:
    """The model sampled two calls; its next prompt holds one, so it can't go on with the tokens that were sampled."""
    renderer = make_renderer("qwen3")
    async with served(TokenPolicy(renderer, looks_twice), renderer) as endpoint:
        session, key = await endpoint.session()
        headers = {"authorization": f"Bearer {key}"}
        body = request_of("chat", True)
        got = await endpoint.http.post(PATHS["chat"], json=body, headers=headers)
        [call] = got.json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
        got = await endpoint.http.post(PATHS["chat"], json=answered(body, '{"command": "ls"}'), headers=headers)
        assert got.json()["choices"][0]["message"]["content"] == "Done."
        summary = await session.end()
    assert (summary["turns"], summary["branches"]) == (2, 2)
    first = read_session(session.path).of("completion")[0]
    assert len(first.data["message"]["calls"]) == 2 and first.tokens is not None
    assert first.tokens.ids[first.tokens.lead :] == renderer.answer(looks_twice(Request("s", ())), first_call=0)
