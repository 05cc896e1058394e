"""The responses format, for servers: what a client sends, what it is answered, and the events in their order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.wire import responses
from etude.agent.policy.wire.answer_stream import AnswerStream
from etude.agent.policy.wire.errors import WireError
from etude.agent.policy.wire.responses_stream import ResponsesStream
from etude.agent.policy.wire.responses_tools import toolset
from etude.agent.policy.wire.responses_types import ResponsesRequest
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message, ToolCall

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def asked(**body: Any) -> ResponsesRequest:
    return ResponsesRequest.model_validate({"model": "m", **body})


@st.composite
def turns(draw: st.DrawFn) -> Message:
    names = draw(st.lists(st.sampled_from(["read", "edit"]), max_size=3))
    calls = tuple(ToolCall(f"k{i}", name, {"x": draw(texts)}) for i, name in enumerate(names))
    return Message("assistant", draw(texts), draw(texts | st.just("")), calls)


@given(turn=turns())
def test_an_answer_sent_back_as_input_is_the_same_turn(turn: Message) -> None:
    body = responses.response(Completion(message=turn), id="1", model="m", created_at=1).model_dump()
    results = [{"type": "function_call_output", "call_id": call.id, "output": "r"} for call in turn.calls]
    sent = asked(instructions="s", input=[{"role": "user", "content": "go"}, *body["output"], *results])
    assert responses.request_messages(sent) == [
        Message("system", "s"), Message("user", "go"), turn, *(Message("tool", "r", call_id=c.id) for c in turn.calls),
    ]  # fmt: skip


def test_events_come_in_the_documented_order_and_end_with_the_whole_answer() -> None:
    turn = Message("assistant", "hi", "hm", (ToolCall("k", "read", {"path": "a"}),))
    answer = Completion(message=turn, usage=Usage(5, 2, 3))
    body = responses.response(answer, id="1", model="m", created_at=1)
    events = [json.loads(json.dumps(event)) for event in AnswerStream(ResponsesStream("1", "m", 1)).close(answer)]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == [
        "created", "in_progress",
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert events[-1]["response"] == json.loads(json.dumps(responses.wire_form(body)))
    assert events[-1]["response"]["usage"]["total_tokens"] == 8
    assert events[8]["item"]["content"] == [] and events[0]["response"]["status"] == "in_progress"


def test_a_cut_answer_is_incomplete() -> None:
    cut = Completion(message=Message("assistant", "half"), finish="length")
    body = responses.response(cut, id="1", model="m", created_at=1)
    assert body.status == "incomplete" and body.incomplete_details == {"reason": "max_output_tokens"}
    assert [*AnswerStream(ResponsesStream("1", "m", 1)).close(cut)][-1]["type"] == "response.incomplete"


def test_a_broken_call_in_the_input_is_a_malformed_turn() -> None:
    call = {"type": "function_call", "call_id": "k", "name": "read", "arguments": '{"pa'}
    [message] = responses.request_messages(asked(input=[call]))
    assert message.problem == "the arguments of read are no JSON object" and message.calls == ()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input": "x", "previous_response_id": "r"}, "stored conversation"),
        ({"input": [{"role": "user", "content": [{"type": "hologram", "at": "u"}]}]}, "type 'hologram'"),
        ({"input": [{"type": "web_search_call"}]}, r"input\[0\] is an item of type 'web_search_call'"),
        ({"input": [{"type": "function_call", "arguments": "{}"}]}, "without call_id or name"),
        ({"input": "x", "tools": [{"type": "computer"}]}, r"tools\[0\] is of type 'computer'"),
    ],
)
def test_what_has_no_words_of_ours_is_refused_by_its_place(body: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError, match=said):
        responses.request_messages(asked(**body))
        toolset(asked(**body).tools or ())


def test_functions_are_read_with_their_schemas() -> None:
    tool = {"type": "function", "name": "read", "description": "d", "parameters": {"type": "object"}, "strict": True}
    [function] = toolset([tool]).functions
    assert function["function"] == {"name": "read", "description": "d", "parameters": {"type": "object"}}


def test_namespaces_and_custom_tools_are_functions_to_the_model_and_their_own_to_the_client() -> None:
    spawn = {"type": "function", "name": "spawn", "parameters": {"type": "object"}}
    patch = {"type": "custom", "name": "patch", "format": {"type": "grammar", "definition": "start: X"}}
    declared = toolset([{"type": "namespace", "name": "agents", "tools": [spawn]}, patch, {"type": "web_search"}])
    assert [tool["function"]["name"] for tool in declared.functions] == ["agents__spawn", "patch"]
    assert "start: X" in declared.functions[1]["function"]["parameters"]["properties"]["input"]["description"]
    assert declared.left_out == ("web_search",)
    calls = (ToolCall("k0", "agents__spawn", {"x": 1}), ToolCall("k1", "patch", {"input": "*** Begin"}))
    turn = Message("assistant", calls=calls)
    body = responses.response(Completion(message=turn), id="1", model="m", created_at=1, forms=declared.forms)
    first, last = body.output
    assert (first.type, first.namespace, first.name) == ("function_call", "agents", "spawn")
    assert (last.type, last.name, last.input, last.arguments) == ("custom_tool_call", "patch", "*** Begin", None)
    result = {"type": "custom_tool_call_output", "call_id": "k1", "output": "ok"}
    sent = asked(input=[*body.model_dump(exclude_none=True)["output"], result])
    assert responses.request_messages(sent) == [turn, Message("tool", "ok", call_id="k1")]


def test_a_custom_tool_called_with_something_else_hears_what_it_was_called_with() -> None:
    declared = toolset([{"type": "custom", "name": "patch"}])
    for arguments in ({"patch": "x"}, {"input": 3}, {"input": "x", "more": 1}):
        turn = Message("assistant", calls=(ToolCall("k", "patch", arguments),))
        body = responses.response(Completion(message=turn), id="1", model="m", created_at=1, forms=declared.forms)
        assert json.loads(body.output[0].input or "") == arguments


@pytest.mark.parametrize("tool", [{"type": "namespace"}, {"type": "namespace", "name": "n", "tools": ["x"]}, {}])
def test_a_tool_without_form_is_refused_by_its_place(tool: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=r"tools\[0\]"):
        toolset([tool])
