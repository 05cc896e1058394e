"""Edits: one place or none, no byte outside of the replaced lines, and what matched is said."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.edits.editing import EditError, Replace, edit, windows
from etude.agent.workspace.text_file import BOM, NotText, TextFile

pieces = st.sampled_from(["a", "b", " ", "  ", "\t", "x = 1", "é", "“q”", "—", "\r", "out"])
line = st.lists(pieces, max_size=4).map("".join)
ends = st.sampled_from(["\n", "\r\n"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Text with mixed line ends, with or without a mark and a last newline."""
    rows = [draw(line) + draw(ends) for _ in range(draw(st.integers(0, 6)))]
    return (BOM if draw(st.booleans()) else b"") + "".join([*rows, draw(line)]).encode()


texts = st.lists(line, max_size=3).map("\n".join)
edits = st.builds(Replace, old=texts, new=texts, all=st.booleans())


@given(data=files())
def test_a_file_goes_back_to_the_bytes_it_came_from(data: bytes) -> None:
    assert TextFile.decode(data).encode() == data


@given(data=files(), one=edits)
def test_an_edit_changes_no_byte_outside_of_the_lines_it_replaces(data: bytes, one: Replace) -> None:
    file = TextFile.decode(data)
    try:
        done = edit(file, [one])
    except EditError:
        return
    before, after = data.split(b"\n"), done.file.encode().split(b"\n")
    head = len(os.path.commonprefix([before, after]))
    tail = len(os.path.commonprefix([before[head:][::-1], after[head:][::-1]]))
    old_lines, new_lines = file.lines, done.file.lines
    same_head = len(os.path.commonprefix([old_lines, new_lines]))
    rest = len(os.path.commonprefix([old_lines[same_head:][::-1], new_lines[same_head:][::-1]]))
    # Lines whose text stayed at either end kept their bytes; only a last line without an end may get one.
    assert head >= same_head - (same_head == len(old_lines) or same_head == len(new_lines))
    assert tail >= rest - (rest in (len(old_lines) - same_head, len(new_lines) - same_head))
    assert done.file.bom == file.bom


@given(rows=st.lists(line.filter(lambda row: "\r" not in row), max_size=6), one=edits)
def test_an_exact_edit_is_plain_replacement(rows: list[str], one: Replace) -> None:
    text = "\n".join(rows)
    old, new = one.old.replace("\r\n", "\n"), one.new.replace("\r\n", "\n")
    if not old or old == new or old not in text or (text.count(old) > 1 and not one.all):
        return
    try:
        done = edit(TextFile.decode(text.encode()), [one])
    except EditError as miss:
        assert miss.problem == "several"  # places that overlap are several
        return
    assert done.file.text == text.replace(old, new) and done.hows == ("exact",)


@given(rows=st.lists(line, min_size=1, max_size=6), data=st.data())
def test_the_reported_lines_hold_what_was_written(rows: list[str], data: st.DataObject) -> None:
    marked = [f"{i}: {row}" for i, row in enumerate(rows)]
    at = data.draw(st.integers(0, len(rows) - 1))
    done = edit(TextFile.decode("\n".join(marked).encode()), [Replace(f"{at}: ", "new\nlines ")])
    first, last = done.spans[0]
    assert done.file.lines[first - 1] == "new" and done.file.lines[last - 1].startswith("lines ") and last == first + 1


def test_several_edits_see_each_others_result_and_fail_together() -> None:
    file = TextFile.decode(b"a\nb\n")
    assert edit(file, [Replace("a", "b2"), Replace("b2\nb", "c")]).file.encode() == b"c\n"
    with pytest.raises(EditError) as miss:
        edit(file, [Replace("a", "x"), Replace("a", "y")])
    assert (miss.value.number, miss.value.problem) == (2, "none") and file.encode() == b"a\nb\n"


@pytest.mark.parametrize(
    ("data", "old", "new", "after", "how"),
    [
        (b"def f():\n    return  1\n", "return 1", "return 2", b"def f():\n    return 2\n", "blanks"),
        ("say “hi” — now\n".encode(), 'say "hi" - now', "bye", b"bye\n", "typography"),
        ("a\u00a0=\u20091\n".encode(), "a = 1", "a = 2", b"a = 2\n", "blanks"),
        (b"\xef\xbb\xbfx\r\ny\r\nz", "y", "y1\ny2", b"\xef\xbb\xbfx\r\ny1\r\ny2\r\nz", "exact"),
        (b"x\r\ny\nz\r\n", "y", "1\n2", b"x\r\n1\n2\r\nz\r\n", "exact"),
        (b"x\r\ny", "y", "y\n", b"x\r\ny\r\n", "exact"),
        (b"one\n\ntwo\n", "one\n\ntwo", "one\ntwo", b"one\ntwo\n", "exact"),
        (b"a\nb\n", "a\r\nb", "c", b"c\n", "exact"),
        (b"\ta\n\tb\n", "  a\n  b", "  a\n    c\n  b", b"\ta\n\t\tc\n\tb\n", "blanks"),
    ],
)
def test_marks_line_ends_and_indentation_are_kept(data: bytes, old: str, new: str, after: bytes, how: str) -> None:
    done = edit(TextFile.decode(data), [Replace(old, new)])
    assert done.file.encode() == after and done.hows == (how,)


@pytest.mark.parametrize(
    ("old", "problem", "lines"),
    [
        ("out", "several", [2, 4]),
        ("  x", "several", [3, 5]),
        ("nowhere", "none", []),
        ("", "empty", []),
        ("\t\n\t", "none", []),
    ],
)
def test_what_names_no_one_place_says_where_it_is(old: str, problem: str, lines: list[int]) -> None:
    with pytest.raises(EditError) as miss:
        edit(TextFile.decode(b"def f():\n    out = 0\n x \n    return out\n x\n"), [Replace(old, "new")])
    assert (miss.value.problem, miss.value.lines) == (problem, lines)


def test_a_miss_shows_the_closest_region_also_far_down_a_long_file() -> None:
    rows = [f"value_{i} = {i}" for i in range(20_000)]
    with pytest.raises(EditError) as miss:
        edit(TextFile.decode("\n".join(rows).encode()), [Replace("value_17000 = 17\nvalue_17001 = 18", "x")])
    assert "17001 value_17000 = 17000" in miss.value.hint


@pytest.mark.parametrize(("data", "words"), [(b"a\0b", "is binary"), (b"ab\xff", r"is not UTF-8 text \(byte 2\)")])
def test_what_is_no_text_is_distinguished(data: bytes, words: str) -> None:
    with pytest.raises(NotText, match=words):
        TextFile.decode(data)


@given(data=files(), text=st.lists(line, max_size=5).map("\n".join))
def test_new_content_takes_the_old_files_mark_and_ends(data: bytes, text: str) -> None:
    old = TextFile.decode(data)
    new = TextFile.like(text, old)
    assert new.bom == old.bom
    again = TextFile.decode(new.encode())
    assert [row.rstrip("\r") for row in again.lines] == [row.rstrip("\r") for row in text.split("\n")]


few = st.lists(st.sampled_from(["a", "b", ""]), max_size=14)


@given(few, few.filter(bool), st.integers(0, 4))
def test_lines_are_found_at_each_place_where_they_stand(lines: list[str], wanted: list[str], first: int) -> None:
    plain = [at for at in range(first, len(lines)) if lines[at : at + len(wanted)] == wanted]
    assert windows(lines, wanted, first) == plain


class Counted(str):
    """A line that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__ne__(self, other)


def test_each_line_is_compared_a_few_times_however_often_lines_repeat() -> None:
    lines = [Counted("x = 1") for _ in range(5_000)]
    wanted = [*(Counted("x = 1") for _ in range(500)), Counted("y")]
    assert windows(list[str](lines), list[str](wanted)) == []
    assert 5_000 <= Counted.compared < 5 * (len(lines) + len(wanted))


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(("old", "new"), [("ab", "cde"), ("b\nab", "b\nx\nab"), ("ab\n", "")])
def test_many_places_are_replaced_as_few_are(ends: str, old: str, new: str) -> None:
    few = edit(TextFile.decode(f"ab{ends}ab{ends}zz{ends}".encode() * 2), [Replace(old, new, all=True)]).file.encode()
    many = edit(
        TextFile.decode(f"ab{ends}ab{ends}zz{ends}".encode() * 30_000), [Replace(old, new, all=True)]
    ).file.encode()
    assert many == few[: len(few) // 2] * 30_000


def test_many_places_in_a_file_of_mixed_line_ends_keep_each_its_own() -> None:
    data = b"ab\r\nzz\nab\nzz\r\n" * 200
    done = edit(TextFile.decode(data), [Replace("ab", "c", all=True)])
    assert done.file.encode() == data.replace(b"ab", b"c")


def test_places_that_overlap_without_end_are_several_at_once() -> None:
    with pytest.raises(EditError) as refused:
        edit(TextFile.decode(b"a" * 1_000_000), [Replace("a" * 8000, "b")])
    assert refused.value.problem == "several"
