"""Every request is one that a strict endpoint accepts: names, ids, and results that answer a call."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.wire.outgoing import Outgoing, fresh_id, tool_name
from etude.core.trace.message import Message, ToolCall

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
names = (
    st.sampled_from(["read", "", "multi_tool_use.parallel", "list_dir<|channel|>commentary", "x" * 70, "l\u00e9s"])
    | st.text()
)
ids = st.sampled_from(["call_0", "call_1", "", "functions.read:0", "abcdefGH1", "y" * 90]) | st.text(max_size=4)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    said = [Message("user", "go")]
    for _ in range(draw(st.integers(0, 4))):
        calls = tuple(ToolCall(draw(ids), draw(names)) for _ in range(draw(st.integers(0, 3))))
        provider = draw(st.sampled_from(["", "here", "there"]))
        said.append(Message("assistant", draw(st.sampled_from(["", "x"])), calls=calls, provider=provider))
        said += [Message("tool", str(i), call_id=call.id) for i, call in enumerate(calls)]
        said += [Message("tool", "malformed: x")] * draw(st.integers(0, 1))
    return said


@given(conversations(), st.booleans())
def test_names_are_valid_ids_unique_and_each_result_answers_its_call(said: list[Message], strict: bool) -> None:
    rows = Outgoing("here", strict_ids=strict).rows(said)
    seen: set[str] = set()
    open_ids: list[str] = []
    for row in rows:
        if row["role"] == "tool":
            assert row["tool_call_id"] == open_ids.pop(0), "results come in the order of their calls"
            continue
        assert not open_ids
        for call in row.get("tool_calls", ()):
            assert NAME.fullmatch(call["function"]["name"]) and call["id"] and call["id"] not in seen
            assert not strict or NAME.fullmatch(call["id"])
            seen.add(call["id"])
        open_ids = [call["id"] for call in row.get("tool_calls", ())]
    assert len(rows) == len(said)


def test_ids_that_are_unique_go_back_to_their_provider_as_they_came() -> None:
    calls = (ToolCall("functions.read:0", "read"), ToolCall("z" * 90, "read"))
    for provider, same in (("here", True), ("", True), ("there", False)):
        [row] = Outgoing("here").rows([Message("assistant", calls=calls, provider=provider)])
        assert ([call["id"] for call in row["tool_calls"]] == [call.id for call in calls]) is same


@pytest.mark.parametrize(
    ("id", "form"), [("call_0", r"call_0-\d+"), ("", r"call-\d+"), ("abcdEF123", r"[a-zA-Z0-9]{9}")]
)
def test_an_id_that_is_taken_becomes_another_of_its_form(id: str, form: str) -> None:
    used = {id}
    for _ in range(20):
        found = fresh_id(id, used)
        assert re.fullmatch(form, found) and found not in used
        used.add(found)


def test_a_valid_name_stays_and_others_are_cleaned() -> None:
    assert tool_name("read-file_2") == "read-file_2"
    assert tool_name("list_dir<|channel|>commentary") == "list_dir__channel__commentary"
    assert (tool_name(""), tool_name("x" * 70)) == ("unnamed", "x" * 64)


def test_a_result_that_answers_no_call_is_said_by_the_user() -> None:
    rows = Outgoing().rows([Message("user", "go"), Message("tool", "lost", call_id="k9")])
    assert rows[1] == {"role": "user", "content": "lost"}


def test_half_a_surrogate_pair_never_leaves() -> None:
    said = [
        Message("user", "caf\udce9"),
        Message("assistant", calls=(ToolCall("k", "read\udce9", {"path": "\ud83d"}),)),
    ]
    assert str(Outgoing().rows(said)).encode()
