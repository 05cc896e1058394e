"""Edits: one place or none. A miss changes nothing and shows the closest region; blanks may differ, nothing else."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.edits import matching
from etude.agent.harness.edits.indentation import IndentationUnclear
from etude.agent.harness.edits.matching import NoUniqueMatch, replace

FILE = "def f(x):\n    if x > 1:\n        return  2\n    return 3\n\ndef g():\n\treturn 3\n"

pieces = st.lists(st.sampled_from(["a", "b", " ", "\n", "    ", "ab = 1", "(", "é"]), min_size=1, max_size=25).map(
    "".join
)


@given(text=pieces, old=pieces, new=pieces)
def test_either_exactly_one_place_changes_or_nothing_does(text: str, old: str, new: str) -> None:
    try:
        result = replace(text, old, new)
    except NoUniqueMatch as miss:
        assert miss.matches != 1
        return
    except IndentationUnclear:
        return  # it matches but for blanks, and those of the new text have no place in the file
    if not result.loose:
        before, after = text.split(old, 1)
        assert result.text == before + new + after and old not in after
    else:
        assert text.count(old) == 0


@given(head=pieces, tail=pieces, new=pieces)
def test_an_exact_unique_match_keeps_every_other_byte(head: str, tail: str, new: str) -> None:
    result = replace(f"{head}<<old>>{tail}", "<<old>>", new)
    assert result.text == f"{head}{new}{tail}" and not result.loose


@pytest.mark.parametrize("text", ["x = 1\nx = 1\n", "x = 1x = 1"])
def test_two_places_are_refused(text: str) -> None:
    with pytest.raises(NoUniqueMatch, match="2 matches"):
        replace(text, "x = 1", "y")
    with pytest.raises(NoUniqueMatch, match="2 matches"):
        replace("aaa", "aa", "b")  # overlapping


def test_a_unique_match_in_all_but_blanks_is_taken_and_said() -> None:
    result = replace(FILE, "if x > 1:\n    return 2", "if x > 5:\n    return 4")
    assert result.loose
    assert result.text == FILE.replace("    if x > 1:\n        return  2", "    if x > 5:\n        return 4")


def test_several_loose_matches_change_nothing() -> None:
    with pytest.raises(NoUniqueMatch, match="2 matches"):
        replace(FILE, "return  3", "return 4")


def test_a_loose_match_may_delete_lines() -> None:
    assert replace("a\n  b  c\nd", "b c", "").text == "a\nd"


def test_a_miss_shows_the_closest_region_with_line_numbers() -> None:
    with pytest.raises(NoUniqueMatch) as caught:
        replace(FILE, "if x >= 1:\n        return 2", "y")
    assert str(caught.value) == "no match"
    assert caught.value.hint == "2     if x > 1:\n3         return  2"


@pytest.mark.parametrize("old", ["nothing like it at all", "   ", "\n\n\n\n"])
def test_nothing_close_gives_no_hint(old: str) -> None:
    with pytest.raises(NoUniqueMatch) as caught:
        replace(FILE, old, "y")
    assert caught.value.hint == ""


def test_line_ends_of_other_lines_survive() -> None:
    assert replace("a\r\n  b  c\r\nd\r\n", "b c", "B").text == "a\r\n  B\nd\r\n"


@pytest.mark.parametrize(
    ("lines", "wanted", "compared"),
    [
        (60, 3, 58),  # cheap: every window
        (2000, 20, 8),  # dear: where most of the words stand
        (300, 200, 0),  # too dear even for one window
    ],
)
def test_a_miss_in_a_large_file_compares_few_windows_and_still_finds_the_closest(
    monkeypatch: pytest.MonkeyPatch, lines: int, wanted: int, compared: int
) -> None:
    windows: list[str] = []

    class Counting(SequenceMatcher[str]):
        def set_seq1(self, a: str) -> None:  # pyright: ignore
            windows.extend([a] if a else [])
            assert len(windows) <= compared  # here, not at the end, which may be minutes away
            super().set_seq1(a)

    monkeypatch.setattr(matching, "SequenceMatcher", Counting)
    file = [f"def make_{i}(width, height): return Box(width, {i})" for i in range(lines)]
    start = lines // 3
    old = "\n".join(file[start : start + wanted]).replace("Box", "Bag")
    with pytest.raises(NoUniqueMatch) as caught:
        replace("\n".join(file), old, "y")
    assert len(windows) == compared
    region = [f"{number} {file[number - 1]}" for number in range(start + 1, start + 1 + wanted)]
    assert caught.value.hint == ("\n".join(region) if compared else "")
