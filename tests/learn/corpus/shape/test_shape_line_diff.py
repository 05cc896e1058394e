"""A diff applied to the old text gives the new one, by our own reading and by git's; and it is short where little changed."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.shape.diffs import TextBlock, apply_blocks, ended, search_replace_blocks
from etude.learn.corpus.shape.line_diff import GAP_PAIRS, changes, split_lines
from etude.learn.corpus.shape.unified import unified_diff

LINES = st.lists(
    st.sampled_from(["a", "b", "c", "{", "}", "", "x = 1", "\ry", "-- z"]) | st.text(max_size=3), max_size=14
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + ("\n" if end and lines else ""), LINES, st.booleans())
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$")


def apply(old: str, diff: str) -> str:
    """A strict reader of unified diffs: every count, place and context line must be right."""
    before, after, at = split_lines(old), [], 0
    lines = diff.split("\n")[:-1]
    place = next((n for n, line in enumerate(lines) if HUNK.match(line)), len(lines))
    while place < len(lines):
        found = HUNK.match(lines[place])
        assert found, lines[place]
        start, count, new_start, new_count = (1 if group is None else int(group) for group in found.groups())
        start = start - 1 if count else start
        after += before[at:start]
        at = start
        assert len(after) == (new_start - 1 if new_count else new_start)
        begin, new_begin, place = at, len(after), place + 1
        while place < len(lines) and not HUNK.match(lines[place]):
            mark, line = lines[place][0], lines[place][1:] + "\n"
            place += 1
            if place < len(lines) and lines[place].startswith("\\"):
                line, place = line[:-1], place + 1
            if mark in " -":
                assert before[at] == line
                at += 1
            if mark in " +":
                after.append(line)
        assert (at - begin, len(after) - new_begin) == (count, new_count)
    return "".join(after + before[at:])


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS)
def test_a_unified_diff_applied_to_the_old_text_gives_the_new_one(old: str, new: str) -> None:
    diff = unified_diff("f", old, new)
    assert apply(old, diff) == new
    assert (diff == "") == (old == new)


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS)
def test_search_replace_blocks_applied_in_turn_give_the_new_text(old: str, new: str) -> None:
    blocks = search_replace_blocks(old, new)
    if blocks is not None:
        assert apply_blocks(ended(old), blocks) == ended(new)
    else:
        assert not old or len(old) < 200  # empty, or repeating itself without end


@settings(max_examples=100, deadline=None)
@given(LINES, LINES, LINES)
def test_changes_leave_equal_lines_between_them_and_never_more_than_all(
    old: list[str], new: list[str], both: list[str]
) -> None:
    old, new = old + both, new + both
    found = changes(old, new)
    for before, after in zip(found, found[1:], strict=False):
        assert after.start - before.end == after.new_start - before.new_end > 0
        assert old[before.end : after.start] == new[before.new_end : after.new_start]
    assert sum(change.end - change.start for change in found) <= len(old) - len(both)


def test_git_takes_our_diffs(tmp_path: Path) -> None:
    old, new = "one\ntwo\nthree\n", "zero\none\nthree\nfour"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text(old)
    (tmp_path / "old.txt").write_text(new)
    diff = (
        unified_diff("sub/a.txt", old, new)
        + unified_diff("b.txt", None, "new\n")
        + unified_diff("c.txt", new, new, old_path="old.txt")
    )
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "sub" / "a.txt").read_text() == new
    assert (tmp_path / "b.txt").read_text() == "new\n"
    assert (tmp_path / "c.txt").read_text() == new
    assert not (tmp_path / "old.txt").exists()


def test_two_changes_in_a_large_file_are_two_small_hunks() -> None:
    old = [f"def f{n}():" if n % 5 == 0 else f"    line {n % 5}" for n in range(20_000)]
    new = list(old)
    new[100] = "changed"
    new[15_000:15_000] = ["put in"]
    assert len(unified_diff("f", "\n".join(old), "\n".join(new)).split("\n")) < 30


def test_large_texts_without_a_common_line_take_no_time() -> None:
    old = "".join(f"{n % 7}\n" for n in range(60_000))
    new = "".join(f"{(n * n) % 7}\n" for n in range(60_000))
    assert len(old) > GAP_PAIRS
    start = time.process_time()
    assert apply(old, unified_diff("f", old, new)) == new
    assert time.process_time() - start < 2  # difflib takes minutes


def test_a_block_takes_the_context_that_makes_it_unmistakable() -> None:
    old = "def a():\n    return 1\n\n\ndef b():\n    return 1\n"
    (block,) = search_replace_blocks(old, old[:-2] + "2\n") or []
    assert block == TextBlock("def b():\n    return 1\n", "def b():\n    return 2\n")


@pytest.mark.parametrize("old", ["", "x\n=======\ny\n", "same\n" * 100])
def test_what_blocks_cannot_say_is_none(old: str) -> None:
    new = old[:-5] + "new\n" + old[-5:] + "end\n" if len(old) > 100 else old + "more\n"
    assert search_replace_blocks(old, new) is None


def test_a_block_whose_text_is_not_there_once_is_refused() -> None:
    assert apply_blocks("a\na\n", [TextBlock("a\n", "b\n")]) is None
    assert apply_blocks("aa\n", [TextBlock("a\n", "b\n")]) is None
    assert apply_blocks("a\n", [TextBlock("", "b\n")]) is None
