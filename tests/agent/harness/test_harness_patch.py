"""Patches: what a diff says happens, in files as they are, or nothing at all."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.edits.patch import PatchError, apply, parse
from etude.agent.workspace.text_file import TextFile

rows = st.lists(st.sampled_from(["a", "b", "", "  c", "def f():", "    return 1", "é"]), max_size=12)


def envelope(old: list[str], new: list[str], context: int, numbered: bool = False) -> str:
    """The patch that a model would write for the difference of two files; `numbered` with the hunk headers of a unified diff."""
    body = [line for line in difflib.unified_diff(old, new, lineterm="", n=context) if line[:3] not in ("---", "+++")]
    hunks = ["@@" if line.startswith("@@") and not numbered else line for line in body]
    return "\n".join(["*** Begin Patch", "*** Update File: f", *hunks, "*** End Patch"])


@given(old=rows, new=rows, crlf=st.booleans())
def test_a_diff_with_all_of_its_context_gives_the_new_file(old: list[str], new: list[str], crlf: bool) -> None:
    if old == new or not old:
        return
    file = TextFile.decode(("\r\n" if crlf else "\n").join([*old, ""]).encode())
    [change] = parse(envelope(old, new, 99))
    done = apply("f", file, change.hunks)
    ends = "\r\n" if crlf and len(old) > 0 else "\n"
    assert done.file.encode() == "".join(line + ends for line in new).encode()


@given(old=rows, new=rows, context=st.integers(0, 3), drawn=st.data())
def test_a_unified_diff_in_the_envelope_gives_the_new_file_however_its_hunks_are_ordered(
    old: list[str], new: list[str], context: int, drawn: st.DataObject
) -> None:
    if old == new or not old:
        return
    [change] = parse(envelope(old, new, context, numbered=True))
    hunks = drawn.draw(st.permutations(change.hunks))
    after = apply("f", TextFile.decode("\n".join([*old, ""]).encode()), hunks).file.text
    assert after == "".join(f"{line}\n" for line in new)


UPDATE = "*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n"


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{UPDATE}*** End Patch\n```",
        f"```diff\n{UPDATE}*** End Patch\n```\n",
        f"apply_patch <<'EOF'\n{UPDATE}*** End Patch\nEOF",
        f"<<EOF\n{UPDATE}*** End Patch\nEOF\n",
        UPDATE,
        f"{UPDATE}*** End Patch\n\n",
        f"{UPDATE}\\ No newline at end of file\n*** End Patch",
        "*** Begin Patch\n*** Update File: f\n@@ -1,2 +1,2 @@ def g():\n-a\n+b\n*** End Patch",
    ],
)
def test_forms_that_models_write_around_a_patch_are_read(text: str) -> None:
    [change] = parse(text)
    assert apply("f", TextFile.decode(b"a\n"), change.hunks).file.text == "b\n"


def test_several_sections_of_one_file_are_one_and_may_come_in_any_order() -> None:
    text = "*** Begin Patch\n*** Update File: f\n@@\n-c\n+C\n*** Update File: g\n@@\n-x\n+y\n*** Update File: f\n@@\n-a\n+A\n*** End Patch"
    first, second = parse(text)
    assert (first.path, second.path) == ("f", "g")
    done = apply("f", TextFile.decode(b"a\nb\nc\n"), first.hunks)
    assert done.file.text == "A\nb\nC\n" and done.spans == ((1, 1), (3, 3))
    with pytest.raises(PatchError, match="hunk 2: it changes lines that an earlier hunk changes"):
        apply("f", TextFile.decode(b"a\nb\n"), parse(f"{UPDATE}@@\n a\n-b\n+c")[0].hunks)


def test_blank_lines_without_a_mark_belong_to_an_added_file() -> None:
    add, update = parse(
        "*** Begin Patch\n*** Add File: n\n+a\n\n+b\n+\n\n*** Update File: f\n@@\n-a\n+b\n\n*** End Patch"
    )
    assert add.lines == ["a", "", "b", ""] and len(update.hunks[0].rows) == 2


@given(text=st.text(st.sampled_from("*@+- \nabBeginPatchEdUpdtFil:"), max_size=120) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (
        text,
        f"*** Begin Patch\n{text}\n*** End Patch",
        f"*** Begin Patch\n*** Update File: f\n{text}\n*** End Patch",
    ):
        try:
            changes = parse(candidate)
        except PatchError as bad:
            assert str(bad)
            continue
        for change in changes:
            try:
                apply(change.path, TextFile.decode(b"a\n\n  b\nc"), change.hunks)
            except PatchError as bad:
                assert str(bad)


def changed(
    body: str, text: str = "class A:\n    def f(self):\n        x = 1\n\nclass B:\n    def f(self):\n        x = 1\n"
) -> str:
    [change] = parse(f"*** Begin Patch\n*** Update File: f\n{body}\n*** End Patch")
    return apply("f", TextFile.decode(text.encode()), change.hunks).file.encode().decode()


def test_headers_lead_to_the_right_one_of_equal_places() -> None:
    assert changed("@@ class B:\n@@     def f(self):\n-        x = 1\n+        x = 2").endswith(
        "class B:\n    def f(self):\n        x = 2\n"
    )
    with pytest.raises(PatchError, match=r"match 2 places \(lines 3, 7\); add context or an @@ line"):
        changed("-        x = 1\n+        x = 2")


def test_hunks_follow_each_other_and_context_stays_as_the_file_has_it() -> None:
    assert changed("@@\n a\n-b\n+B\n@@\n-d\n+D\n+e", "a  \nb\nc\nd\n") == "a  \nB\nc\nD\ne\n"
    assert changed("@@\n-d\n+D\n*** End of File", "d\nc\nd\n") == "d\nc\nD\n"
    assert changed("+at the end", "a\n") == "a\nat the end\n"
    assert changed("@@ def f():\n+    first", "def f():\n    pass\n") == "def f():\n    first\n    pass\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "begins with the line"),
        ("*** Begin Patch\n*** End Patch", "changes no file"),
        ("*** Begin Patch\nhello\n*** End Patch", "line 2: expected"),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "line 3: each line of an added file begins with"),
        ("*** Begin Patch\n*** Delete File: a\n-x\n*** End Patch", "line 3: nothing may follow"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "hunk 1 has no lines"),
        ("*** Begin Patch\n*** Update File: a\nx = 1\n*** End Patch", "line 3: a hunk's lines begin with"),
        ("*** Begin Patch\n*** Delete File: a\n*** Delete File: a\n*** End Patch", "a is twice"),
        ("*** Begin Patch\n*** Delete File: \n*** End Patch", "holds no path"),
    ],
)
def test_what_is_wrong_with_a_patch_is_said_with_its_line(text: str, words: str) -> None:
    with pytest.raises(PatchError, match=words):
        parse(text)


def test_a_hunk_that_fits_nowhere_shows_the_closest_region() -> None:
    with pytest.raises(PatchError, match=r"f, hunk 1: its old lines were not found; closest:\n2 beta = 2"):
        changed("-beta = 3\n+x", "alpha = 1\nbeta = 2\n")
    with pytest.raises(PatchError, match="no line 'def g' at or below line 1"):
        changed("@@ def g\n-x\n+y")


def test_a_number_that_is_no_lines_place_is_a_header() -> None:
    patch = f"*** Begin Patch\n*** Update File: f\n@@ -{'9' * 5000},1 +1,1 @@\n-x\n+y\n*** End Patch"
    [change] = parse(patch)
    assert change.hunks[0].line == -1
    with pytest.raises(PatchError, match="no line"):
        apply("f", TextFile.decode(b"x\n"), change.hunks)


@pytest.mark.parametrize("opening", ["```", "```patch", "<<EOF", "<<-'EOF'", 'apply_patch <<"EOF"'])
def test_what_is_around_an_envelope_is_taken_off(opening: str) -> None:
    inner = "*** Begin Patch\n*** Delete File: a\n*** End Patch"
    end = "```" if opening.startswith("`") else "EOF"
    assert parse(f"\n{opening}\n\n{inner}\n{end}\n ") == parse(inner)


def test_a_wrapper_without_end_is_refused_at_once() -> None:
    with pytest.raises(PatchError, match="a patch begins with"):
        parse("```" + "\n" * 1_000_000 + "x")
