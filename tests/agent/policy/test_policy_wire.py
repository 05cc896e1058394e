"""Both wire formats, from either side: what a client sends a server reads, what a server answers a client reads, streamed or not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from etude.agent.policy.wire import anthropic, chat
from etude.agent.policy.wire.answer_stream import AnswerStream
from etude.agent.policy.wire.anthropic_stream import MessagesAssembly, MessagesStream
from etude.agent.policy.wire.anthropic_types import MessagesRequest, MessagesResponse
from etude.agent.policy.wire.chat_assembly import ChatAssembly
from etude.agent.policy.wire.chat_stream import ChatStream
from etude.agent.policy.wire.chat_types import ChatRequest
from etude.agent.policy.wire.errors import WireError, anthropic_error, openai_error
from etude.agent.policy.wire.outgoing import Outgoing
from etude.agent.policy.wire.sse import DONE, EventReader, ServerSentEvent, frame
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message, ToolCall

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts, lambda v: st.lists(v, max_size=3), max_leaves=5
)
arguments = st.dictionaries(texts, values, max_size=3)


@st.composite
def turns(draw: st.DrawFn, number: int = 0) -> Message:
    names = draw(st.lists(st.sampled_from(["read", "edit"]), max_size=3))
    calls = tuple(ToolCall(f"k{number}-{i}", name, draw(arguments)) for i, name in enumerate(names))
    text = draw(texts.filter(lambda t: bool(t.strip())))
    return Message("assistant", text, draw(texts), calls)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    said = [Message("system", draw(texts.filter(bool))), Message("user", draw(texts.filter(lambda t: bool(t.strip()))))]
    for number in range(draw(st.integers(0, 3))):
        turn = draw(turns(number))
        said.append(turn)
        said += [Message("tool", draw(texts), call_id=call.id) for call in turn.calls]
        if not turn.calls:
            said.append(Message("user", draw(texts.filter(lambda t: bool(t.strip())))))
    return said


def silent(messages: list[Message]) -> list[Message]:
    """Thinking from an unknown source is not sent back."""
    return [Message(m.role, m.text, "", m.calls, m.call_id) for m in messages]


@given(messages=conversations())
def test_a_conversation_survives_the_chat_format(messages: list[Message]) -> None:
    body = json.loads(json.dumps({"model": "m", "messages": Outgoing().rows(messages)}))
    assert chat.request_messages(ChatRequest.model_validate(body)) == silent(messages)


@given(messages=conversations())
def test_a_conversation_survives_the_anthropic_format(messages: list[Message]) -> None:
    body = json.loads(json.dumps({"model": "m", "max_tokens": 9, **anthropic.to_wire(messages, ())}))
    assert anthropic.request_messages(MessagesRequest.model_validate(body)) == silent(messages)


@given(message=turns(), used=st.tuples(*[st.integers(0, 99)] * 3), finish=st.sampled_from(["stop", "length"]))
def test_an_answer_survives_both_formats_streamed_or_not(message: Message, used: Any, finish: Any) -> None:
    if finish == "length" and not message.calls:
        finish = "stop"  # a cut turn gets its problem: see below
    answer = Completion(message=message, finish=finish, usage=Usage(used[0] + used[1], used[1], used[2]))
    body = chat.chat_completion(answer, id="x", model="m", created=1).model_dump()
    streamed = ChatAssembly()
    for chunk in AnswerStream(ChatStream("x", "m", 1, usage=True)).close(answer):
        streamed.add(json.loads(json.dumps(chunk)))
    for one in (body, streamed.body()):
        back = chat.from_wire(one, (), 0.0)
        assert back.message == message and back.usage == answer.usage
    response = anthropic.messages_response(answer, id="x", model="m").model_dump(exclude_none=True)
    events = MessagesAssembly()
    for event in AnswerStream(MessagesStream("x", "m")).close(answer):
        events.add(json.loads(json.dumps(event)))
    for one in (response, events.body()):
        back = anthropic.from_wire(one, 0.0)
        assert back.message == message and back.usage == answer.usage


def test_events_of_an_anthropic_stream_come_in_the_documented_order() -> None:
    message = Message("assistant", "hi", "hm", (ToolCall("k", "read", {"path": "a"}),))
    kinds = [event["type"] for event in AnswerStream(MessagesStream("x", "m")).close(Completion(message=message))]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *block * 3, "message_delta", "message_stop"]


def test_a_live_chat_stream_carries_a_role_first_and_a_reason_last() -> None:
    answer = Completion(message=Message("assistant", "hi", calls=(ToolCall("k", "read", {}),)))
    rows = [*AnswerStream(ChatStream("x", "m", 1)).close(answer)]
    assert rows[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [row["choices"][0]["finish_reason"] for row in rows] == [None, None, None, "tool_calls"]
    assert rows[2]["choices"][0]["delta"]["tool_calls"][0]["index"] == 0


def test_calls_that_come_in_pieces_are_put_together() -> None:
    stream = ChatAssembly()
    pieces: list[dict[str, Any]] = [
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "read", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"path":'}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "edit", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ' "x"}'}}]},
    ]
    shown = [stream.add({"choices": [{"delta": piece, "finish_reason": None}]}) for piece in pieces]
    stream.add({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    assert shown == [("", "")] * 4
    message = chat.from_wire(stream.body(), (), 0.0).message
    assert message is not None
    assert message.calls == (ToolCall("a", "read", {"path": "x"}), ToolCall("b", "edit", {}))


def test_whole_calls_without_an_index_are_distinguished_by_their_ids() -> None:
    stream = ChatAssembly()
    for name in ("a", "b"):
        call = {"id": name, "function": {"name": "read", "arguments": "{}"}}
        stream.add({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]})
        stream.add({"choices": [{"delta": {"tool_calls": [{**call, "id": name + "0", "index": 0}]}}]})
    stream.add({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    assert [call["id"] for call in stream.body()["choices"][0]["message"]["tool_calls"]] == ["a", "a0", "b", "b0"]


def test_a_broken_call_is_a_malformed_turn_in_either_format() -> None:
    stream = ChatAssembly()
    call = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path'}}
    stream.add({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    events = MessagesAssembly()
    for event in (
        {"type": "message_start", "message": {"id": "x", "type": "message", "role": "assistant", "model": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "read", "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"path'}},
        {"type": "ping"},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    ):  # fmt: skip
        events.add(event)
    for message in (chat.from_wire(stream.body(), (), 0.0).message, anthropic.from_wire(events.body(), 0.0).message):
        assert message is not None and message.calls == ()
        assert message.problem == "the arguments of read are no JSON object" and "path" in message.text


def test_a_stream_that_breaks_off_or_ends_in_an_error_says_so() -> None:
    for assembly in (ChatAssembly(), MessagesAssembly()):
        with pytest.raises(WireError, match="broke off"):
            assembly.body()
    with pytest.raises(WireError, match="overloaded"):
        ChatAssembly().add(openai_error(503, "overloaded"))
    with pytest.raises(WireError, match="overloaded"):
        MessagesAssembly().add(anthropic_error(529, "overloaded"))
    with pytest.raises(WireError, match="block 3, which did not begin"):
        MessagesAssembly().add(
            {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}}
        )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "hologram", "at": {}}]}]}, "type 'hologram'"),
        (
            {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "bash_2025", "name": "w"}]},
            "input_schema",
        ),
    ],
)
def test_what_has_no_words_of_ours_is_refused_by_its_place(body: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError, match=said):
        if "tools" in body:
            anthropic.request_tools(MessagesRequest.model_validate({"model": "m", "max_tokens": 1, **body}))
        chat.request_messages(ChatRequest.model_validate({"model": "m", **body}))


@pytest.mark.parametrize(
    "broken", [{}, {"messages": []}, {"messages": [{"role": "ghost", "content": "x"}]}, {"messages": 3}]
)
def test_requests_that_are_none_are_refused_at_the_door(broken: dict[str, Any]) -> None:
    for model in (ChatRequest, MessagesRequest):
        with pytest.raises(ValidationError):
            model.model_validate({"model": "m", "max_tokens": 5, **broken})


def test_an_anthropic_user_turn_holds_results_and_then_what_the_user_says() -> None:
    content = [
        {"type": "text", "text": "and now"},
        {"type": "tool_result", "tool_use_id": "k", "content": [{"type": "text", "text": "r"}]},
    ]
    body = {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s"}],
        "messages": [{"role": "user", "content": content}],
    }
    assert anthropic.request_messages(MessagesRequest.model_validate(body)) == [
        Message("system", "s"), Message("tool", "r", call_id="k"), Message("user", "and now"),
    ]  # fmt: skip


def test_tools_of_either_format_become_the_same_functions() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    ours = ({"type": "function", "function": {"name": "read", "description": "d", "parameters": schema}},)
    sent = {"model": "m", "max_tokens": 1, **anthropic.to_wire([Message("user", "x")], ours)}
    assert anthropic.request_tools(MessagesRequest.model_validate(sent)) == ours


def test_a_turn_cut_off_is_reported_and_read_as_such() -> None:
    answer = Completion(message=Message("assistant", "half"), finish="length")
    for body in (chat.chat_completion(answer, id="x", model="m", created=1).model_dump(),):
        assert body["choices"][0]["finish_reason"] == "length"
        assert chat.from_wire(body, (), 0.0).message == Message(
            "assistant", "half", problem="the turn was cut off before its end"
        )
    response: MessagesResponse = anthropic.messages_response(answer, id="x", model="m")
    assert response.stop_reason == "max_tokens"


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.sampled_from(["", "ping", "message_stop"]), values), max_size=5),
    cuts=st.lists(st.integers(1, 9)),
)
def test_events_are_read_whole_however_their_bytes_are_cut(rows: list[Any], cuts: list[int]) -> None:
    sent = b"".join(frame(data, name) for name, data in rows) + DONE
    reader, events, at = EventReader(), [], 0
    for size in [*cuts, len(sent)]:
        events += reader.feed(sent[at : at + size])
        at += size
    assert events.pop() == ServerSentEvent("[DONE]")
    assert [(event.name, json.loads(event.data)) for event in events] == rows


def test_events_with_other_line_breaks_comments_and_two_data_lines_are_read() -> None:
    reader = EventReader()
    assert [*reader.feed(b": hello\r\ndata: a\r")] == []
    assert [*reader.feed(b"\ndata:b\r\n\r\nid: 3\n\n")] == [ServerSentEvent("a\nb")]
