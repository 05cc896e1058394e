"""The quality of a change is counted by the syntax that it added; the same text has the same count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.rewards.quality import added_findings, findings, quality_of

BRANCHY = "def f(a):\n" + "".join(f"    if a == {n}:\n        return {n}\n" for n in range(12))


@pytest.mark.parametrize(
    ("text", "kind", "count"),
    [
        ("# x = 1\n# return x\n# print(x)\n", "commented_out", 3),
        ("# for x in y:\n", "commented_out", 1),
        ("# the sum of all\n# TODO\n# 3\n# note: nothing\n# x\n#\n", "commented_out", 0),
        ("import os\nimport sys\nsys.exit()\n", "unused_imports", 1),
        ("from a import b as c\n__all__ = ['c']\n", "unused_imports", 0),
        ("import os.path\nos.path.join()\n", "unused_imports", 0),
        ("try:\n    f()\nexcept Exception:\n    pass\n", "swallowed", 1),
        ("try:\n    f()\nexcept KeyError:\n    pass\n", "swallowed", 0),
        (BRANCHY, "complexity", 3),
        ("def f(:\n", "broken", 1),
    ],
)
def test_findings_are_those_that_a_reviewer_would_name(text, kind, count):
    assert findings(text, "a.py").get(kind, 0) == count


def test_only_what_the_change_added_counts():
    old = "import os\n# x = 1\n"
    assert quality_of({"a.py": old}, {"a.py": (old + "y = 1\n").encode()}) == 0.0
    assert added_findings({"a.py": old}, {"a.py": (old + "# y = 2\n").encode()})["commented_out"] == 1
    assert quality_of({"a.py": old}, {"a.py": b"", "b.txt": b"# x = 1\n"}) == 0.0
    assert quality_of({}, {"new.py": b"import os\n"}) == -1.0


@given(st.text(max_size=200), st.binary(max_size=200))
def test_any_files_have_a_quality_that_is_never_a_reward(before, after):
    once = quality_of({"a.py": before}, {"a.py": after})
    assert once <= 0.0 and once == quality_of({"a.py": before}, {"a.py": after})
