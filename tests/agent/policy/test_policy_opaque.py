"""What a provider sent with a turn goes back to it as it came, from a session on disk too, and to no other provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.wire.chat import from_wire
from etude.agent.policy.wire.chat_assembly import ChatAssembly
from etude.agent.policy.wire.opaque import provider_of
from etude.agent.policy.wire.outgoing import Outgoing
from etude.core.trace.message import Message

HERE, THERE = "https://a.example/v1#m", "https://b.example/v1#m"
CALL = {
    "id": "k1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"path": "a"}', "signature": "inner"},
    "extra_content": {"google": {"thought_signature": "c2ln"}},
}
DETAILS = [
    {"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0},
    {"type": "reasoning.encrypted", "data": "x"},
]
TURNS = [
    {"content": "look", "reasoning_content": "hm", "tool_calls": [CALL]},
    {"content": "", "reasoning_content": "", "tool_calls": [CALL]},
    {"content": None, "reasoning": "hm", "reasoning_details": DETAILS, "tool_calls": [CALL]},
    {"content": "done", "reasoning": "hm", "reasoning_content": "hm"},
    {"content": "done", "reasoning_text": "hm", "reasoning_opaque": "b64"},
    {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "done"}]},
]
FOR_THE_READER = {"refusal": None, "annotations": [], "audio": None, "function_call": None}


def read(row: dict[str, Any], provider: str = HERE) -> Message:
    answer = from_wire({"choices": [{"message": row, "finish_reason": "stop"}]}, (), 0.0, provider)
    assert answer.message is not None
    return Message.from_json(json.loads(json.dumps(answer.message.to_json())))  # as a session keeps it


@pytest.mark.parametrize("sent", TURNS)
def test_a_turn_goes_back_to_its_provider_as_it_came(sent: dict[str, Any]) -> None:
    [row] = Outgoing(HERE).rows([read({"role": "assistant", **sent, **FOR_THE_READER})])
    expected = {"role": "assistant", **sent, "content": sent["content"] or ""}
    assert row == expected


@pytest.mark.parametrize("sent", TURNS)
def test_another_provider_gets_none_of_it(sent: dict[str, Any]) -> None:
    [row] = Outgoing(THERE).rows([read(sent)])
    assert row.keys() <= {"role", "content", "tool_calls"} and isinstance(row["content"], str)
    for call in row.get("tool_calls", ()):
        assert call.keys() == {"id", "type", "function"} and call["function"].keys() == {"name", "arguments"}


def test_an_address_and_a_model_make_a_provider() -> None:
    here = provider_of("https://API.example:443/v1/", "m")
    assert here == provider_of("https://user:secret@api.example:443/v1", "m") and "secret" not in here
    others = [("http://api.example:443/v1", "m"), ("https://api.example/v1", "m"), ("https://api.example:443/v1", "m2")]
    assert here not in {provider_of(*other) for other in others}


@pytest.mark.parametrize("sent", TURNS)
def test_a_streamed_turn_is_the_turn_that_was_sent_whole(sent: dict[str, Any]) -> None:
    """In three chunks: texts in halves, the rest unchanged."""
    stream = ChatAssembly()
    calls = [{"index": i, **call} for i, call in enumerate(sent.get("tool_calls", ()))]
    halves: list[dict[str, Any]] = [{}, {}]
    for key, value in sent.items():
        if key == "tool_calls":
            continue
        if isinstance(value, str):
            halves[0][key], halves[1][key] = value[:1], value[1:]
        else:
            halves[0][key] = value
    for delta in (*halves, {"tool_calls": calls}):
        stream.add({"choices": [{"delta": delta}]})
    stream.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    streamed, whole = read(stream.body()["choices"][0]["message"]), read(sent)
    assert streamed.to_json() == whole.to_json()


def test_pieces_of_one_item_of_a_streamed_list_are_joined() -> None:
    stream = ChatAssembly()
    pieces = [{"type": "reasoning.text", "text": "h", "index": 0}, {"type": "reasoning.text", "text": "m", "index": 0}]
    signed = {"type": "reasoning.text", "signature": "s", "index": 0}
    for piece in (*pieces, signed):
        stream.add({"choices": [{"delta": {"reasoning": piece.get("text"), "reasoning_details": [piece]}}]})
    stream.add({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]})
    message = read(stream.body()["choices"][0]["message"])
    assert message.opaque["reasoning_details"] == [
        {"type": "reasoning.text", "text": "hm", "index": 0, "signature": "s"}
    ]
    assert message.thinking == "hm"


def test_a_field_that_the_person_omits_is_omitted_in_messages_and_calls_too() -> None:
    how = Outgoing(HERE, unwanted=frozenset({"reasoning_content", "extra_content"}))
    [row] = how.rows([read(TURNS[0])])
    assert "reasoning_content" not in row and "extra_content" not in row["tool_calls"][0]


def test_a_session_of_before_has_no_such_fields_and_is_read_and_sent_as_it_was() -> None:
    row = {"role": "assistant", "text": "x", "thinking": "hm", "calls": [{"id": "k", "name": "read", "arguments": {}}]}
    message = Message.from_json(row)
    assert message.to_json() == row
    assert Outgoing(HERE).rows([message])[0].keys() == {"role", "content", "tool_calls"}


json_values = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5), lambda v: st.dictionaries(st.text(max_size=4), v, max_size=3)
)


@given(fields=st.dictionaries(st.text(min_size=1, max_size=6).map(lambda name: f"x_{name}"), json_values, max_size=4))
def test_any_field_that_no_one_knows_survives(fields: dict[str, Any]) -> None:
    fields = json.loads(json.dumps(fields, ensure_ascii=True).replace("\\ud", "\\u0"))
    [row] = Outgoing(HERE).rows([read({"content": "x", **fields, "tool_calls": [{**CALL, **fields}]})])
    assert {key: row[key] for key in fields} == fields
    assert {key: row["tool_calls"][0][key] for key in fields} == fields
