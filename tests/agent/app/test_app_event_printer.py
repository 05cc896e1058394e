"""What a person reads: everything once, and no line of an old answer left standing above the prompt."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from etude.agent.app.event_printer import EventPrinter

Event = dict[str, Any]
THOUGHT, ANSWER = "THOUGHT one\nTHOUGHT two", "ANSWER one\nANSWER two"
KINDS = {"reasoning": THOUGHT, "agent_message": ANSWER}


def piece(kind: str, text: str, **more: Any) -> Event:
    return {"type": "item.updated", "item": {"id": "i", "type": kind, "delta": text, **more}}


def completed(kind: str, text: str) -> Event:
    return {"type": "item.completed", "item": {"id": "i", "type": kind, "text": text}}


def shown(events: list[Event], *, answers: bool = True) -> tuple[str, str]:
    """What was printed, and what is left in the last line."""
    out = StringIO()
    teller = EventPrinter(Console(file=out, width=80), answers=answers)
    for event in events:
        teller(event)
    return out.getvalue(), teller.tail


@st.composite
def turns(draw: st.DrawFn) -> list[Event]:
    """Thinking, then text, in pieces as far as they are streamed at all; then both as completed items."""
    streamed = [(kind, text) for kind, text in KINDS.items() if draw(st.booleans())]
    events = []
    for place, (kind, text) in enumerate(streamed):
        if place + 1 == len(streamed) and streamed[0][0] == "reasoning":
            text = text[: draw(st.integers(1, len(text)))]
        while text:
            cut = draw(st.integers(1, len(text)))
            events.append(piece(kind, text[:cut]))
            text = text[cut:]
    return [*events, *(completed(kind, text) for kind, text in KINDS.items())]


@given(st.lists(turns(), min_size=1, max_size=3), st.booleans())
def test_each_turn_is_shown_once_whichever_of_it_was_streamed(several: list[list[Event]], answers: bool) -> None:
    text, tail = shown([event for turn in several for event in turn], answers=answers)
    letters = "".join(text.split())
    for kind, whole in KINDS.items():
        expected = len(several) if answers or kind == "reasoning" else 0
        assert letters.count("".join(whole.split())) == expected
    assert len(letters) == len(several) * sum(
        len("".join(t.split())) for k, t in KINDS.items() if answers or k == "reasoning"
    )
    assert not tail


@given(turns(), st.sampled_from(["turn.failed", "error"]))
def test_a_turn_that_was_broken_off_is_shown_and_leaves_no_line_behind(turn: list[Event], how: str) -> None:
    cut = [event for event in turn if event["type"] == "item.updated"]
    text, tail = shown([*cut, {"type": how, "message": "x", "error": {"message": "x"}}])
    assert not tail
    assert "".join("".join(event["item"]["delta"] for event in cut).split()) in "".join(text.split())


@pytest.mark.parametrize("kinds", [("reasoning",), ("agent_message",), ("reasoning", "agent_message")])
def test_a_turn_that_is_asked_for_again_says_so_once(kinds: tuple[str, ...]) -> None:
    old = [piece(kind, "OLD tail") for kind in kinds]
    void = [piece(kind, "", restarted=True) for kind in ("agent_message", "reasoning")]
    text, tail = shown([*old, *void, *(completed(kind, text) for kind, text in KINDS.items())])
    assert text.count("asked for again") == 1 and text.count("ANSWER one") == 1 and not tail


def test_control_characters_in_an_error_do_not_reach_the_terminal() -> None:
    text, _ = shown([{"type": "error", "message": "\x1b[31mred\u202e"}])
    assert "\x1b" not in text and "\u202e" not in text


def test_a_wait_before_a_retry_is_one_line_with_its_reason() -> None:
    text, _ = shown([{"type": "retry", "message": "HTTP 429: busy", "wait_s": 20.0, "number": 1, "of": 5}])
    assert text == "! HTTP 429: busy: asked again in 20 s (try 1 of 5)\n"
