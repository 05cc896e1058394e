"""A kept patch over the first files gives the last ones, whatever lines they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.grading.judged_attempt import diff_of
from etude.evaluate.bench.runs.judged_run import PatchMismatch, apply_patch
from etude.evaluate.bench.runs.participant_run import patch
from etude.tasks.content import EXECUTABLE, LINK, FileBytes, FileText, file_text

LINES = st.lists(
    st.sampled_from(["", "a", "b", "-- x", "++ y", "@@ -1 +1 @@", "--- a/f", "+++ b/f", " c"]), max_size=12
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + ("\n" if end and lines else ""), LINES, st.booleans())
TREES = st.dictionaries(st.sampled_from(["f", "g.py", "d/h.py"]), TEXTS.filter(bool))


@given(TREES, TREES)
def test_the_patch_of_two_trees_leads_from_one_to_the_other(before: dict[str, str], after: dict[str, str]) -> None:
    wanted = {path: text.encode() for path, text in after.items()}
    found = patch(before, wanted) if wanted else ""
    assert apply_patch(before, found) == (wanted or {path: text.encode() for path, text in before.items()})


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-other\n+new\n", "f:1: the patch does not fit"),
        ("--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n", "not there"),
        ("Binary file f differs\n", "was not kept"),
        ("hello\n", "no header"),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n", "ends within a hunk"),
    ],
)
def test_a_patch_of_something_else_is_refused_by_its_place(text: str, wrong: str) -> None:
    with pytest.raises(PatchMismatch, match=wrong):
        apply_patch({"f": "a\nb\n"}, text)


SPECIAL = {
    "latin.txt": file_text(b"caf\xe9\n"),
    "gone.png": file_text(b"\x89PNG\0"),
    "logo.png": file_text(b"\x89PNG\0"),
    "lnk": FileText("run.sh", LINK),
    "run.sh": FileText("echo a\n", EXECUTABLE),
}


def test_files_that_are_no_text_and_did_not_change_are_in_no_diff() -> None:
    same = {path: text.encode() for path, text in SPECIAL.items()}
    assert patch(SPECIAL, same) == diff_of(SPECIAL, same) == ""


def test_a_text_that_took_the_place_of_one_that_is_none_is_named_and_can_be_written() -> None:
    after = {path: text.encode() for path, text in SPECIAL.items()}
    del after["gone.png"]
    after |= {"latin.txt": "café\n".encode(), "lnk": FileBytes(b"other", LINK), "run.sh": b"echo b\n"}
    patched, shown = patch(SPECIAL, after), diff_of(SPECIAL, after)
    assert patched.encode() and shown.encode()
    assert patched.startswith(
        "Binary file gone.png removed\nBinary file latin.txt differs\nBinary file lnk differs\n--- a/run.sh\n"
    )
    assert "gone.png: removed" in shown and "latin.txt: 6 bytes" in shown and "+echo b" in shown and "PNG" not in shown


def test_a_patch_keeps_modes_and_removes_what_is_no_text() -> None:
    after = {path: text.encode() for path, text in SPECIAL.items() if path != "gone.png"}
    after["run.sh"] = FileBytes(b"echo b\n", EXECUTABLE)
    assert apply_patch(SPECIAL, patch(SPECIAL, after)) == after
