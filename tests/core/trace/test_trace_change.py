"""Changes of files: hunks lead from one text to the other, and lines are known by what they say."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.change import Hunk, TextChange, changed_spans, line_hash, split

lines = st.lists(st.sampled_from(["a", "b", "c", "  d", "", "é\ud800"]), max_size=12)
texts = st.one_of(st.none(), st.builds(lambda found, end: "\n".join(found) + end, lines, st.sampled_from(["", "\n"])))


@given(before=texts, after=texts)
def test_hunks_lead_from_the_old_text_to_the_new(before: str | None, after: str | None) -> None:
    change = TextChange("f", before, after)
    old, new = split(before), split(after)
    built, at = [], 0
    for hunk in change.hunks():
        built += old[at : hunk.old_start - 1]
        built += new[hunk.new_start - 1 : hunk.new_start - 1 + hunk.new_lines]
        at = hunk.old_start - 1 + hunk.old_lines
        assert list(hunk.lines) == [line_hash(line) for line in new[hunk.new_start - 1 :][: hunk.new_lines]]
    assert built + old[at:] == new
    assert len(new) - len(old) == change.added - change.removed
    assert sum(len(hunk.lines) for hunk in change.hunks()) == change.added == len(change.added_lines())


@given(before=texts, after=texts)
def test_an_edit_entry_survives_json(before: str | None, after: str | None) -> None:
    change = TextChange("f", before, after)
    entry = change.to_entry("c1")
    assert [Hunk.from_json(row) for row in entry["hunks"]] == change.hunks()
    assert entry["kind"] == ("create" if before is None else "delete" if after is None else "change")


def test_a_line_is_known_whatever_blanks_follow_it() -> None:
    assert line_hash("x = 1  \t") == line_hash("x = 1") != line_hash(" x = 1")
    assert split("a\n\nb") == ["a", "", "b"] and split("a\n") == ["a"] and split("") == split(None) == []
    assert split("a\r\x0cb\n") == ["a\r\x0cb"], "only a newline ends a line, as in git"


def test_an_edit_of_a_long_file_is_cheap() -> None:
    text = "".join(f"line {i}\n" for i in range(50_000))
    change = TextChange("f", text, text.replace("line 25000\n", "new\nlines\n"))
    assert [(h.old_start, h.old_lines, h.new_start, h.new_lines) for h in change.hunks()] == [(25001, 1, 25001, 2)]


def test_a_journal_of_bytes_tells_text_and_leaves_binary_files_out() -> None:
    assert TextChange.of_bytes("f", None, b"caf\xc3\xa9\n") == TextChange("f", None, "café\n")
    assert TextChange.of_bytes("f", b"\xff", b"x") is None and TextChange.of_bytes("f", b"x", b"\xff") is None


def test_a_rewrite_of_a_long_file_does_not_keep_anybody_waiting() -> None:
    change = TextChange("f", "same\n" * 20_000, "x\n" + "same\nother\n" * 10_000)
    start = time.process_time()
    assert change.added - change.removed == 1 and change.hunks()
    assert time.process_time() - start < 2.0


def test_scattered_edits_of_a_long_file_are_distinguished() -> None:
    lines = [f"line {i}" if i % 5 else "" for i in range(20_000)]
    edited = [f"new {i}" if i % 1000 == 1 else line for i, line in enumerate(lines)]
    start = time.process_time()
    change = TextChange("f", "\n".join(lines), "\n".join(edited))
    assert [(h.old_start, h.old_lines, h.new_lines) for h in change.hunks()] == [
        (i + 2, 1, 1) for i in range(0, 20_000, 1000)
    ]
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize(("count", "kept"), [(3000, 3000), (100_000, 150)])
def test_lines_that_repeat_without_end_are_compared_within_a_bound(count: int, kept: int) -> None:
    old, new = ["a", *["x"] * count, "b"], ["c", *["x", "y"] * (kept // 2), "b"]
    made, at = [], 0
    for start, stop, first, last in changed_spans(old, new):
        made += [*old[at:start], *new[first:last]]
        at = stop
    assert [*made, *old[at:]] == new
