"""Suggestions: a slip of a few keystrokes is recognised, a name that only looks alike is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.spelling import distance, similar, similar_key

WORDS = st.text("abcdef_", max_size=12)


@pytest.mark.parametrize(
    ("one", "other", "keystrokes"),
    [("", "", 0), ("a", "", 1), ("limit", "lmit", 1), ("limit", "ilmit", 1), ("kitten", "sitting", 3), ("ab", "ba", 1)],
)
def test_a_distance_counts_keystrokes(one: str, other: str, keystrokes: int) -> None:
    assert distance(one, other) == keystrokes


@given(WORDS, WORDS)
def test_a_distance_is_symmetric_and_bounded_by_the_longer_word(one: str, other: str) -> None:
    found = distance(one, other)
    assert found == distance(other, one) and (found == 0) == (one == other)
    assert abs(len(one) - len(other)) <= found <= max(len(one), len(other))


@given(WORDS, st.lists(WORDS, max_size=8), st.integers(0, 3))
def test_every_suggestion_is_a_known_name_within_three_keystrokes(word: str, known: list[str], most: int) -> None:
    found = similar(word, known, most)
    assert len(found) <= most and set(found) <= set(known)
    assert all(distance(word, name) <= min(3, max(1, min(len(word), len(name)) // 3)) or word == name for name in found)


@given(st.text("abcdef", min_size=3, max_size=12), st.data())
def test_one_wrong_keystroke_in_a_word_of_four_is_recognised(word: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(word)))
    typed = word[:place] + data.draw(st.sampled_from("xyz")) + word[place:]
    assert similar(typed, ["unrelated", word]) == [word]


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("push", ["corpus", "run"], []),
        ("train", ["pretrain", "run"], []),
        ("runs", ["run", "corpus"], ["run"]),
        ("gpt-5", ["nop", "expert"], []),
        ("ps", ["rl", "ls"], []),
        ("main.py", ["main.js", "domain.txt"], ["main.js"]),
        ("Limit", ["limit"], ["limit"]),
    ],
)
def test_a_name_that_only_looks_alike_is_no_suggestion(word: str, known: list[str], meant: list[str]) -> None:
    assert similar(word, known) == meant


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("rl.lora", None),
        ("model.peft", None),
        ("rl.advantage", None),
        ("rl.group_sise", "rl.group_size"),
        ("rl.sltos", "rl.slots"),
        ("modle.experts", "model.experts"),
    ],
)
def test_a_common_section_makes_keys_no_more_alike(key: str, meant: str | None) -> None:
    known = ["rl.slots", "rl.update", "rl.group_size", "model.experts"]
    assert similar_key(key, known) == meant
