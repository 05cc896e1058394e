"""Streamed calls stay as many as they are, however a server numbers and names them; a turn's end is found in every form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.openai_stream import STREAM_FAULTS
from etude.agent.policy.wire.chat import from_wire
from etude.agent.policy.wire.chat_assembly import ChatAssembly
from etude.agent.policy.wire.errors import ProviderError, StreamCut
from etude.agent.policy.wire.outgoing import Outgoing
from etude.core.trace.message import Message, ToolCall

ABSENT = object()


def piece(index: Any = ABSENT, id: Any = ABSENT, **function: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"function": function}
    row |= {} if index is ABSENT else {"index": index}
    return row if id is ABSENT else {**row, "id": id}


def calls_of(pieces: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    stream = ChatAssembly()
    for one in pieces:
        stream.add({"choices": [{"delta": {"tool_calls": [one]}}]})
    stream.add({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    message = from_wire(stream.body(), (), 0.0).message
    assert message is not None and message.problem is None, message
    return message.calls


A, B = '{"path": "a"}', '{"path": "b"}'
ALIKE = [("read", A), ("read", B)]
OTHERS = [("list", "{}"), ("find", A)]
ONE = [("read", A)]
STREAMS = {
    "index 0, empty ids": ([piece(0, "", name="list", arguments="{}"), piece(0, "", name="find", arguments=A)], OTHERS),
    "index 0, no ids": ([piece(0, name="list", arguments="{}"), piece(0, name="find", arguments=A)], OTHERS),
    "index 0, null ids": ([piece(0, None, name="read", arguments=A), piece(0, None, name="read", arguments=B)], ALIKE),
    "no index, no ids": ([piece(name="list", arguments="{}"), piece(name="find", arguments=A)], OTHERS),
    "no index, empty ids": ([piece(id="", name="read", arguments=A), piece(id="", name="read", arguments=B)], ALIKE),
    "index 0, one id": ([piece(0, "c", name="list", arguments="{}"), piece(0, "c", name="find", arguments=A)], OTHERS),
    "index 0, one id, one name": ([piece(0, "c", name="read", arguments=A), piece(0, "c", name="read", arguments=B)], ALIKE),
    "two indices, one id": ([piece(0, "c", name="read", arguments=A), piece(1, "c", name="read", arguments=B)], ALIKE),
    "index 0, distinct ids": ([piece(0, "c", name="read", arguments=A), piece(0, "d", name="read", arguments=A)], [*ONE, *ONE]),
    "no arguments": ([piece(0, "", name="list", arguments=""), piece(0, "", name="find", arguments=A)], OTHERS),
    "second one in pieces": (
        [piece(0, name="list", arguments="{}"), piece(0, name="find", arguments=A[:5]), piece(0, arguments=A[5:])],
        OTHERS,
    ),
    "name in every piece": ([piece(0, "c", name="read", arguments=A[:5]), piece(0, "c", name="read", arguments=A[5:])], ONE),
    "name in every piece, no ids": ([piece(0, name="read", arguments=A[:5]), piece(0, name="read", arguments=A[5:])], ONE),
    "empty id behind": ([piece(0, "c", name="read", arguments=A[:5]), piece(0, "", arguments=A[5:])], ONE),
    "no index behind": ([piece(id="c", name="read", arguments=A[:5]), piece(arguments=A[5:])], ONE),
    "sent twice": ([piece(0, "c", name="read", arguments=A), piece(0, "c", name="read", arguments=A)], ONE),
    "closed by an empty piece": ([piece(0, "c", name="read", arguments=A), piece(0, "c", name="read", arguments="")], ONE),
    "a number as id": ([piece(0, 7, name="list", arguments="{}"), piece(1, 8, name="find", arguments=A)], OTHERS),
    "null in pieces": ([piece(0, "c", name="read", arguments=None), piece(0, None, name=None, arguments=A)], ONE),
    "parsed arguments": ([piece(0, "c", name="read", arguments={"path": "a"})], ONE),
    "empty arguments first": ([piece(0, "c", name="read", arguments="{}"), piece(0, "c", arguments=A[:5]), piece(0, "c", arguments=A[5:])], ONE),
    "one-based": ([piece(1, "c", name="list", arguments="{}"), piece(2, "d", name="find", arguments=A)], OTHERS),
}  # fmt: skip


@pytest.mark.parametrize(("pieces", "expected"), STREAMS.values(), ids=STREAMS)
def test_streamed_calls_stay_as_many_as_they_are(pieces: list[dict[str, Any]], expected: list[tuple[str, str]]) -> None:
    assert [(call.name, json.dumps(call.arguments)) for call in calls_of(pieces)] == expected


@pytest.mark.parametrize("name", ["model_dump", "__class__", "id2", "model_extra"])
def test_a_field_may_have_any_name(name: str) -> None:
    pieces = [{**piece(0, "c", name="read", arguments=A), name: "x"}, {**piece(0, "c", arguments=""), name: "y"}]
    stream = ChatAssembly()
    for one in pieces:
        stream.add({"choices": [{"delta": {"tool_calls": [one]}}]})
    [call] = stream.body(trusting=True)["choices"][0]["message"]["tool_calls"]
    assert call[name] == "xy"


def test_a_field_that_comes_with_every_piece_is_kept_once() -> None:
    stream = ChatAssembly()
    for text in ("ha", "ha", "!"):
        stream.add({"choices": [{"delta": {"content": text, "reasoning": text, "service_tier": "default"}}]})
    stream.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    message = stream.body()["choices"][0]["message"]
    assert (message["service_tier"], message["content"], message["reasoning"]) == ("default", "haha!", "haha!")


def test_a_piece_without_a_function_and_arguments_that_are_a_list_are_the_models_slip_at_most() -> None:
    stream = ChatAssembly()
    pieces = [{"index": 0, "id": "c", "function": None}, {"index": 0, "function": {"name": "read", "arguments": [1]}}]
    for one in pieces:
        stream.add({"choices": [{"delta": {"tool_calls": [one]}}]})
    stream.finish = "tool_calls"
    message = from_wire(stream.body(), (), 0.0).message
    assert message is not None and message.problem == "the arguments of read are no JSON object"


@given(st.data())
def test_interleaved_calls_with_their_own_indices_are_put_together(data: st.DataObject) -> None:
    texts = [json.dumps({"path": "x" * i, "n": i}) for i in range(data.draw(st.integers(1, 3)))]
    rest, pieces = {i: text for i, text in enumerate(texts)}, []
    for i in rest:
        pieces.append(piece(i, f"c{i}", name="read", arguments=""))
    while rest:
        i = data.draw(st.sampled_from(sorted(rest)))
        cut = data.draw(st.integers(1, len(rest[i])))
        pieces.append(piece(i, arguments=rest[i][:cut]))
        rest[i] = rest[i][cut:]
        rest = {key: value for key, value in rest.items() if value}
    assert [call.arguments for call in calls_of(pieces)] == [json.loads(text) for text in texts]


def test_done_ends_a_turn_that_names_no_reason_and_an_end_without_a_word_may_be_a_break() -> None:
    stream = ChatAssembly()
    stream.add({"choices": [{"delta": {"content": "all"}}]})
    with pytest.raises(StreamCut) as cut:
        stream.body()
    assert cut.value.whole
    assert stream.body(trusting=True)["choices"][0]["finish_reason"] == "stop"
    stream.done = True
    assert stream.body()["choices"][0] == {
        "message": {"role": "assistant", "content": "all", "tool_calls": []},
        "finish_reason": "stop",
    }


def test_a_streamed_refusal_is_the_answer() -> None:
    stream = ChatAssembly()
    shown = [
        stream.add({"choices": [{"delta": {"content": None, "refusal": text}}]}) for text in ("I can't ", "do that.")
    ]
    stream.finish = "stop"
    message = from_wire(stream.body(), (), 0.0).message
    assert message is not None and message.text == "I can't do that." and shown == [("I can't ", ""), ("do that.", "")]


def test_a_stream_of_nothing_is_cut_even_where_it_says_done() -> None:
    stream = ChatAssembly(done=True)
    with pytest.raises(StreamCut) as cut:
        stream.body(trusting=True)
    assert not cut.value.whole


def test_a_call_in_the_middle_is_a_break_and_no_whole_turn() -> None:
    stream = ChatAssembly()
    stream.add({"choices": [{"delta": {"tool_calls": [piece(0, "c", name="read", arguments='{"pa')]}}]})
    with pytest.raises(StreamCut) as cut:
        stream.body()
    assert not cut.value.whole


def test_no_error_is_no_error_and_an_error_has_the_status_it_names() -> None:
    stream = ChatAssembly()
    assert stream.add({"error": None, "choices": [{"delta": {"content": "x"}}]}) == ("x", "")
    for error, status in (
        ({"code": 429}, 429),
        ({"code": "502"}, 502),
        ("busy", 502),
        ({"type": "invalid_request_error"}, 400),
    ):
        with pytest.raises(ProviderError) as refused:
            stream.add({"error": error})
        assert refused.value.status == status


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ([{"type": "text", "text": None}], ("", "")),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": None}], ("a", "")),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}], ("", "hm")),
        ([{"type": "thinking", "thinking": "hm"}], ("", "hm")),
        ([{"type": "reference", "reference_ids": [1]}], ("", "")),
        (["a", "b"], ("ab", "")),
        (None, ("", "")),
    ],
)
def test_content_in_parts_is_text_and_thinking_streamed_or_whole(content: Any, shown: tuple[str, str]) -> None:
    stream = ChatAssembly()
    assert stream.add({"choices": [{"delta": {"content": content}, "finish_reason": "stop"}]}) == shown
    for body in (stream.body(), {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}):
        message = from_wire(body, (), 0.0, "p").message
        assert message is not None and (message.text, message.thinking) == shown


KEYS = (
    "choices delta message content tool_calls function name arguments id index finish_reason reasoning_content reasoning "
    "reasoning_details refusal usage prompt_tokens prompt_tokens_details cached_tokens error code type text thinking signature object"
).split()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 600)
    | st.text(max_size=3)
    | st.sampled_from(["text", "stop", "{}", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=14,
)
# What the policy expects of a server that answers anything; whatever else came would end a session with a traceback.
EXPECTED = (KeyError, IndexError, TypeError, AttributeError)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4), max_size=4), st.booleans())
def test_any_chunks_make_a_turn_or_a_fault_of_the_stream(rows: list[dict[str, Any]], done: bool) -> None:
    stream = ChatAssembly(done=done)
    try:
        for row in rows:
            stream.add(row)
        body = stream.body(trusting=True)
    except STREAM_FAULTS:
        return
    turn_of(body)


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5))
def test_any_body_makes_a_turn_that_can_be_sent_back_or_is_no_completion(body: dict[str, Any]) -> None:
    turn_of({"choices": [{"message": body, "finish_reason": body.get("type")}], "usage": body.get("usage")})
    turn_of(body)


def turn_of(body: dict[str, Any]) -> None:
    try:
        message = from_wire(body, (), 0.0, "p").message
    except EXPECTED:
        return
    assert message is not None
    kept = Message.from_json(json.loads(json.dumps(message.to_json())))
    json.dumps(Outgoing("p").rows([kept])).encode()
