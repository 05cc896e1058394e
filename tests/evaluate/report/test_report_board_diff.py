"""Edits of our tools and of other agents' are shown as diffs; what is no edit is left as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.report.diff import diff_arguments, diff_of, render_diff

TEXT = st.text(alphabet="ab\n", max_size=30)


@given(TEXT, TEXT)
def test_a_diff_holds_both_sides_whole(old: str, new: str) -> None:
    lines = diff_of({"path": "f", "old": old, "new": new})
    assert lines is not None
    assert [text for sign, text in lines if sign in " -"] == (old.split("\n") if old else [])
    assert [text for sign, text in lines if sign in " +"] == (new.split("\n") if new else [])


@pytest.mark.parametrize("names", [("old", "new"), ("old_string", "new_string"), ("old_str", "new_str")])
def test_the_names_of_other_agents_are_known(names: tuple[str, str]) -> None:
    arguments = {"file_path": "f", names[0]: "a\nb", names[1]: "a\nc"}
    assert diff_of(arguments) == [(" ", "a"), ("-", "b"), ("+", "c")]
    assert diff_arguments(arguments) == set(names)


def test_several_edits_of_a_call_are_set_apart() -> None:
    edits = [{"old": "a", "new": "b"}, {"old": "c", "new": "d"}]
    assert diff_of({"path": "f", "edits": edits}) == [("-", "a"), ("+", "b"), ("@", ""), ("-", "c"), ("+", "d")]


def test_a_file_that_is_written_whole_and_a_patch() -> None:
    assert diff_of({"path": "f", "contents": "x\ny"}) == [("+", "x"), ("+", "y")]
    assert diff_of({"patch": "*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n c"}) == [
        ("@", "*** Begin Patch"), ("@", "*** Update File: f"), ("@", "@@"), ("-", "a"), ("+", "b"), (" ", "c")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [{}, {"content": "x"}, {"old": 3, "new": "x"}, {"patch": "hello"}, {"edits": "no"}, {"edits": [1]}]
)
def test_what_is_no_edit_is_none(arguments: dict) -> None:
    assert diff_of(arguments) is None


def test_texts_too_long_to_compare_are_shown_whole() -> None:
    lines = diff_of({"old": "x\n" * 5000, "new": "y"})
    assert lines is not None and len(lines) == 5002 and lines[-1] == ("+", "y")


def test_a_diff_s_text_is_no_markup() -> None:
    assert "<script" not in render_diff([("+", "<script>\ud800")])
