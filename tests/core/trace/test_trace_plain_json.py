"""JSON from outside is kept and sent on only if every other reader takes it: finite numbers, bounded nesting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.entry import SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.plain_json import MOST_DEPTH, fault_of, parse, plain
from etude.core.trace.writer import SessionWriter

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@given(VALUES)
def test_what_is_plain_stays_and_the_rest_becomes_plain(value: Any) -> None:
    assert fault_of(plain(value)) is None
    json.dumps(plain(value), allow_nan=False)
    if fault_of(value) is None:
        assert plain(value) == value == parse(json.dumps(value))
    else:
        with pytest.raises(ValueError, match="no JSON value"):
            parse(json.dumps(value))


@pytest.mark.parametrize("text", ["NaN", '{"a": [-Infinity]}', "1e999", '{"t": -1e999}', "[" * 600 + "]" * 600])
def test_a_text_that_no_other_reader_takes_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "{"])
def test_a_text_without_end_is_refused_and_raises_nothing_else(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_nesting_is_bounded_at_the_same_depth_everywhere() -> None:
    assert fault_of(nested(MOST_DEPTH)) is None and plain(nested(MOST_DEPTH)) == nested(MOST_DEPTH)
    deeper = nested(MOST_DEPTH + 1)
    assert "deeper than 100" in str(fault_of(deeper)) and fault_of(plain(deeper)) is None
    with pytest.raises(ValueError, match="deeper than 100"):
        parse(json.dumps(deeper))


@pytest.mark.parametrize("value", [nested(600), nested(200_000), float("nan"), [float("inf")]])
def test_a_message_holds_plain_values_whatever_it_is_made_from(value: Any) -> None:
    call = ToolCall("1", "view", {"path": value}, {"signature": value})
    message = Message("assistant", calls=(call,), opaque={"signature": value})
    assert Message.from_json(json.loads(json.dumps(message.to_json(), allow_nan=False))) == message


def test_a_session_file_holds_strict_json(tmp_path: Path) -> None:
    writer = SessionWriter(tmp_path / "s.jsonl", SessionHeader(session_id="s", task_id="t", harness="h"))
    writer.append("counters", {"counters": {"a": float("nan"), "b": 1.5}})
    writer.close()

    def refuse(word: str) -> None:
        raise AssertionError(word)

    lines = (tmp_path / "s.jsonl").read_text().splitlines()
    assert json.loads(lines[1], parse_constant=refuse)["counters"] == {"a": None, "b": 1.5}
