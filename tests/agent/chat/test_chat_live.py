"""A turn that is streamed while it is sampled equals the final turn, however it is cut into pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.chat import trajectories
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.live import LiveTurn
from etude.agent.chat.nano import NanoRenderer
from etude.core.trace.message import Message, ToolCall

WORDS = st.text(st.characters(exclude_categories=["Cs", "Co"]), max_size=40)


def heard(renderer: Any, ids: list[int], seed: int = 0) -> dict[str, str]:
    """What a listener has of a turn that comes in portions of any size."""
    live, result, at = renderer.listen(), {"text": "", "thinking": "", "call": ""}, 0
    draw = random.Random(seed)
    while at < len(ids):
        portion = draw.randint(1, 4)
        for part, piece in live.feed(ids[at : at + portion]):
            assert piece
            result[part] += piece
        at += portion
    return result


def test_the_pieces_of_every_mock_turn_make_its_text_and_its_thinking(real: FamilyRenderer) -> None:
    markers = [*real.family.markers]
    for made, turn in enumerate(trajectories.turns(thinks=real.family.thinks, markers=markers)):
        ids = real.answer(turn, first_call=made)
        said = real.parse(ids, tools=trajectories.TOOLS, first_call=made)
        for seed in range(3):
            result = heard(real, ids, seed)
            assert result["text"] == said.text.strip() and result["thinking"] == said.thinking.strip()
            assert all(call.name in result["call"] for call in said.calls)


@pytest.mark.sample(15)
@settings(max_examples=25)
@given(text=WORDS, thinking=WORDS, value=WORDS, called=st.booleans(), seed=st.integers(0, 9))
def test_any_text_is_reported_whole(
    real: FamilyRenderer, text: str, thinking: str, value: str, called: bool, seed: int
) -> None:
    calls = (ToolCall("c0", "write_file", {"path": "p", "text": value}),) if called else ()
    turn = Message("assistant", f"a{text}z", f"a{thinking}z" if real.family.thinks else "", calls)
    ids = real.answer(turn)
    said = real.parse(ids, tools=trajectories.TOOLS)
    result = heard(real, ids, seed)
    assert said.problem is None
    assert (result["text"], result["thinking"]) == (said.text.strip(), said.thinking.strip())


@pytest.mark.sample(15)
@settings(max_examples=40)
@given(ids=st.lists(st.integers(0, 700), max_size=60), seed=st.integers(0, 9))
def test_no_ids_break_a_listener(real: FamilyRenderer, ids: list[int], seed: int) -> None:
    heard(real, ids, seed)


@given(text=WORDS, seed=st.integers(0, 9))
def test_the_laptop_model_s_pieces_make_its_turn(renderer: NanoRenderer, text: str, seed: int) -> None:
    call = ToolCall("c0", "edit", {"path": "a.py", "old": f"x{text}", "new": "é😀"})
    ids = renderer.answer(Message("assistant", text, calls=(call,)))
    result = heard(renderer, ids, seed)
    assert result["text"] == text.strip()
    assert result["call"] == f"<|edit|>a.py<|arg|>x{text}<|arg|>é😀"


def test_a_replacement_character_at_the_end_of_a_part_is_reported(renderer: NanoRenderer, real: FamilyRenderer) -> None:
    assert heard(renderer, renderer.answer(Message("assistant", "a\ufffd")))["text"] == "a\ufffd"
    thinking = "so\ufffd" if real.family.thinks else ""
    found = heard(real, real.answer(Message("assistant", "a\ufffd", thinking)))
    assert (found["text"], found["thinking"]) == ("a\ufffd", thinking)


def test_a_piece_never_ends_within_a_character(renderer: NanoRenderer) -> None:
    live = renderer.listen()
    ids = renderer.answer(Message("assistant", "日本語 😀 é"))
    pieces = [piece for token in ids for _, piece in live.feed([token])]
    assert "".join(pieces) == "日本語 😀 é" and "\ufffd" not in "".join(pieces)


def test_nothing_is_reported_after_the_end_of_a_turn(renderer: NanoRenderer) -> None:
    ids = renderer.answer(Message("assistant", "done"))
    assert "".join(piece for _, piece in renderer.listen().feed([*ids, *ids])) == "done"


@given(cuts=st.lists(st.integers(1, 5)), inner=st.text("</think> a\n", max_size=12))
def test_an_end_of_thinking_that_is_spelt_in_letters_is_found_wherever_it_is_cut(cuts: list[int], inner: str) -> None:
    """A tokenizer may hold no token for it."""
    inner = inner.replace("</think>", "")
    whole = f"so {inner}</think>it is"
    live = LiveTurn(lambda ids: "".join(map(chr, ids)), {}, begins="thinking", think_end="</think>")
    pieces, ids = [], [ord(letter) for letter in whole]
    for cut in [*cuts, len(ids)]:
        portion, ids = ids[:cut], ids[cut:]
        pieces += live.feed(portion)
    thinking, _, text = whole.partition("</think>")
    assert "".join(piece for part, piece in pieces if part == "thinking") == thinking.strip()
    assert "".join(piece for part, piece in pieces if part == "text") == text.strip()


def test_a_long_run_of_broken_bytes_is_reported_in_time(renderer: NanoRenderer) -> None:
    """Of bytes that begin a character and are not gone on with."""
    tokenizer = renderer._tokenizer
    (broken,) = {tokenizer.token_to_id(name) for name in ("Ã", "<0xC3>")} - {None}
    assert len(renderer.listen().feed([broken] * 4000)[0][1]) > 3000
