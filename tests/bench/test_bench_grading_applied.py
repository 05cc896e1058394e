"""A kept patch over the first files gives the last ones, whatever lines they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.bench.grading.applied import PatchMismatch, applied
from etude.bench.runs.kept import patch

LINES = st.lists(
    st.sampled_from(["", "a", "b", "-- x", "++ y", "@@ -1 +1 @@", "--- a/f", "+++ b/f", " c"]), max_size=12
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + ("\n" if end and lines else ""), LINES, st.booleans())
TREES = st.dictionaries(st.sampled_from(["f", "g.py", "d/h.py"]), TEXTS.filter(bool))


@given(TREES, TREES)
def test_the_patch_of_two_trees_leads_from_one_to_the_other(before: dict[str, str], after: dict[str, str]) -> None:
    wanted = {path: text.encode() for path, text in after.items()}
    found = patch(before, wanted) if wanted else ""
    assert applied(before, found) == (wanted or {path: text.encode() for path, text in before.items()})


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
        applied({"f": "a\nb\n"}, text)
