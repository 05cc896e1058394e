"""What a session teaches, by chat family: exactly the tokens that the policy sampled, and a prompt that only grows."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Callable

import pytest

from etude.agent.chat import trajectories
from etude.agent.chat.families import FAMILIES
from etude.agent.harness.transcript import Transcript
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.segment import Segment
from etude.core.trace.session import Recorder, SessionHeader

TOOLS = trajectories.TOOLS
REQUEST = [Message("system", "SYSTEM words."), Message("user", "USER words.")]


def turns(thinks: bool) -> list[Message]:
    """Two turns with calls and a last one without."""

    def turn(number: int, *paths: str) -> Message:
        calls = tuple(ToolCall(f"c{i}", "read_file", {"path": path}) for i, path in enumerate(paths))
        return Message("assistant", f"ANSWER {number}", f"THOUGHT {number}" if thinks else "", calls)

    return [turn(1, "ARGUMENT.py"), turn(2, "ARGUMENT.a", "ARGUMENT.b"), turn(3)]


async def grown(renderer: Any, answers: list[Message]) -> tuple[Transcript, list[list[int]]]:
    """A session of these turns, and the ids that each of them sampled. Every prompt begins with all tokens before it."""
    transcript = Transcript(Recorder(SessionHeader("s")), renderer, TOOLS)
    transcript.open(REQUEST)
    sampled: list[list[int]] = []
    held: tuple[int, ...] = ()
    for answer in answers:
        prompt = await transcript.prompt()
        assert prompt[: len(held)] == held
        sampled.append(renderer.answer(answer, first_call=transcript.calls))
        said = transcript.completion(Completion(message=answer))
        held = (*prompt, *sampled[-1])
        for call in said.calls:
            transcript.result(Message("tool", "FINDING words", call_id=call.id), call.name, failed=False)
    return transcript, sampled


def runs(segment: Segment) -> list[tuple[bool, list[int]]]:
    """The segment's tokens as runs of sampled and of other tokens."""
    pairs = zip(segment.sampled.tolist(), segment.ids.tolist(), strict=True)
    return [(sampled, [token for _, token in run]) for sampled, run in groupby(pairs, key=lambda pair: pair[0])]


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
async def test_the_mask_marks_what_was_sampled_and_nothing_else(make_renderer: Callable[..., Any], name: str) -> None:
    renderer = make_renderer(name)
    decode, thinks = renderer._tokenizer.decode, renderer.family.thinks
    transcript, sampled = await grown(renderer, turns(thinks))
    (segment,) = transcript.builder.segments()
    found = runs(segment)
    assert [ids for is_sampled, ids in found if is_sampled] == sampled
    for number, ids in enumerate(sampled, 1):
        text = decode(ids)
        assert ids[-1] in renderer.stop_ids and not {*ids[:-1]} & {*renderer._roles}
        assert f"ANSWER {number}" in text and (f"THOUGHT {number}" in text) == thinks
        assert text.count("ARGUMENT") == (1, 2, 0)[number - 1]
        assert not any(word in text for word in ("SYSTEM", "USER", "FINDING"))
    others = [decode(ids) for is_sampled, ids in found if not is_sampled]
    assert not any(word in text for text in others for word in ("ANSWER", "THOUGHT", "ARGUMENT"))
    assert "SYSTEM" in others[0] and "USER" in others[0]
    assert [text.count("FINDING") for text in others[1:3]] == [1, 2]


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
async def test_a_further_request_teaches_no_token_twice(make_renderer: Callable[..., Any], name: str) -> None:
    """Families that drop old thinking render the conversation again: in that segment only the new turn is sampled."""
    renderer = make_renderer(name)
    transcript, sampled = await grown(renderer, turns(renderer.family.thinks))
    transcript.hear(Message("user", "USER again."))
    await transcript.prompt()
    last = Message("assistant", "ANSWER 4", "THOUGHT 4" if renderer.family.thinks else "")
    transcript.completion(Completion(message=last))
    segments = transcript.builder.segments()
    marked = [ids for segment in segments for is_sampled, ids in runs(segment) if is_sampled]
    assert marked == [*sampled, renderer.answer(last)]
    assert len(segments) == 1 or renderer.family.thinks
