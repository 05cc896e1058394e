"""Pieces of an answer, sent as they come: a reader of the stream gets the whole answer, in each format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.wire import anthropic, chat, responses
from etude.agent.policy.wire.answer_stream import AnswerStream, SentText
from etude.agent.policy.wire.anthropic_stream import MessagesAssembly, MessagesStream
from etude.agent.policy.wire.chat_assembly import ChatAssembly
from etude.agent.policy.wire.chat_stream import ChatStream
from etude.agent.policy.wire.responses_stream import ResponsesStream
from etude.agent.policy.wire.responses_types import ResponsesRequest
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message, ToolCall

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TURNS = st.builds(
    lambda text, thinking, calls: Message(
        "assistant", text, thinking, tuple(ToolCall(f"k{i}", "read", {"x": x}) for i, x in enumerate(calls))
    ),
    WORDS, WORDS, st.lists(WORDS, max_size=2),
)  # fmt: skip


def streamed(stream: AnswerStream, turn: Message, lengths: dict[str, int], cut: int) -> list[dict[str, Any]]:
    """Its events if this number of characters of each part is sent before the end, `cut` at a time."""
    events: list[dict[str, Any]] = []
    for part in ("thinking", "text"):
        said = getattr(turn, part)[: lengths[part]]
        for at in range(0, len(said), cut):
            events += stream.piece(part, said[at : at + cut])
    events += stream.close(Completion(message=turn, usage=Usage(5, 0, 7)))
    return json.loads(json.dumps(events))


@given(turn=TURNS, lengths=st.fixed_dictionaries({"text": st.integers(0, 40), "thinking": st.integers(0, 40)}),
       cut=st.integers(1, 9))  # fmt: skip
def test_however_much_is_reported_in_pieces_a_reader_has_the_turn(
    turn: Message, lengths: dict[str, int], cut: int
) -> None:
    chunks = ChatAssembly()
    for row in streamed(AnswerStream(ChatStream("x", "m", 1, usage=True)), turn, lengths, cut):
        chunks.add(row)
    assert chat.from_wire(chunks.body(), (), 0.0).message == turn
    messages = MessagesAssembly()
    for row in streamed(AnswerStream(MessagesStream("x", "m")), turn, lengths, cut):
        messages.add(row)
    assert anthropic.from_wire(messages.body(), 0.0).message == turn
    events = streamed(AnswerStream(ResponsesStream("x", "m", 1)), turn, lengths, cut)
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert items == events[-1]["response"]["output"]
    sent = ResponsesRequest.model_validate({"model": "m", "input": items})
    assert responses.request_messages(sent) == ([turn] if items else [])
    deltas = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    assert deltas == turn.text
    assert [event["sequence_number"] for event in events] == [*range(len(events))]


@pytest.mark.parametrize("make", [lambda: ChatStream("x", "m", 1), lambda: MessagesStream("x", "m")])
def test_the_opening_comes_once_and_first(make: Any) -> None:
    stream = AnswerStream(make())
    turn = Message("assistant", "ab")
    rows = [*stream.piece("text", "a"), *stream.close(Completion(message=turn))]
    whole = [*AnswerStream(make()).close(Completion(message=turn))]
    assert rows[0] == whole[0] and rows.count(rows[0]) == 1


def test_text_that_goes_back_to_thinking_has_a_block_for_each() -> None:
    stream = AnswerStream(MessagesStream("x", "m"))
    said = [("thinking", "a"), ("text", "b"), ("thinking", "c")]
    rows = [event for part, piece in said for event in stream.piece(part, piece)]  # pyright: ignore[reportArgumentType]
    rows += stream.close(Completion(message=Message("assistant", "b", "ac")))
    starts = [row["index"] for row in rows if row["type"] == "content_block_start"]
    stops = [row["index"] for row in rows if row["type"] == "content_block_stop"]
    assert starts == stops == [0, 1, 2]


@given(lengths=WORDS, whole=WORDS)
def test_what_was_reported_stays_reported(lengths: str, whole: str) -> None:
    heard = SentText(text=lengths)
    said = heard.message(Message("assistant", whole)).text
    assert said.startswith(lengths)
    assert said == lengths or said.removeprefix(lengths) == heard.rest("text", Message("assistant", whole))
    if whole.startswith(lengths):
        assert said == whole
