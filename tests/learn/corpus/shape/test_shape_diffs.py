"""Release diffs: applied to the old tree they give the new one; noise is left out; each document keeps its cap."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.licence.licence import Licence
from etude.learn.corpus.record import TextRecord
from etude.learn.corpus.shape.diffs import (
    LONGEST_NEW_FILE_LINES,
    ProjectFileChange,
    TextBlock,
    apply_blocks,
    ended,
    file_changes,
    is_noise,
    release_diffs,
)

SPEC = importlib.util.spec_from_file_location("reader", Path(__file__).with_name("test_shape_line_diff.py"))
assert SPEC is not None and SPEC.loader is not None
reader = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reader)

CORE = "".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(12))
OLD = {
    "setup.py": "setup(version='1.0', author='x')\n",
    "tally/core.py": CORE,
    "tally/old_name.py": "NAME = 'name'\n",
    "tally/gone.py": "GONE = True\n",
    "tally/same.py": "SAME = True\n",
    "vendor/lib.py": "LIB = 1\n",
    "CHANGELOG.md": "## 1.0\nfirst\n",
}
NEW = {
    "setup.py": "setup(version='1.1', author='x')\n",
    "tally/core.py": CORE.replace("return x + 7", "return x - 7"),
    "tally/new_name.py": OLD["tally/old_name.py"],
    "tally/same.py": OLD["tally/same.py"],
    "tally/more.py": "def more(): ...\n",
    "vendor/lib.py": "LIB = 'two'\n",
    "CHANGELOG.md": "## 1.1\nf7 subtracts\n\n## 1.0\nfirst\n",
}


def records(files: dict[str, str], version: str, licence: str = "MIT") -> list[TextRecord]:
    known = Licence(licence, "file" if licence else "none")
    return [
        TextRecord(text, "file", "pypi", "tally", version, "2024-01-01", path, "python", known)
        for path, text in files.items()
    ]


def release(old: dict[str, str], new: dict[str, str], **options) -> list[TextRecord]:
    return release_diffs(records(old, "1.0"), records(new, "1.1"), **options)


def test_a_release_reads_like_a_commit_and_leaves_noise_out() -> None:
    (one,) = release(OLD, NEW)
    assert one.text.startswith(
        "tally 1.0 to 1.1\n\n## 1.1\nf7 subtracts\n\nRemoved: tally/gone.py\n\ndiff --git a/tally/core.py b/tally/core.py\n"
    )
    assert "-    return x + 7\n+    return x - 7\n" in one.text
    assert "rename from tally/old_name.py\nrename to tally/new_name.py\n" in one.text
    assert "--- /dev/null\n+++ b/tally/more.py\n" in one.text
    for noise in ("setup.py", "vendor", "same.py", "a/CHANGELOG.md"):
        assert noise not in one.text
    assert (one.kind, one.version, one.path, one.id) == (
        "diff",
        "1.1",
        "1.0..1.1/unified-0",
        "pypi/tally@1.1:1.0..1.1/unified-0#diff",
    )


def test_an_exercise_has_the_files_the_request_and_blocks_that_make_the_change() -> None:
    (one,) = release(OLD, NEW, form="blocks")
    files, rest = one.text.split("==> request <==\n")
    request, answer = rest.split("==> changes <==\n")
    assert files == f"==> tally/core.py <==\n{CORE}\n"
    assert "f7 subtracts" in request
    blocks = re.findall(
        r"<<<<<<< SEARCH\n(.*?)=======\n(.*?)>>>>>>> REPLACE\n", answer.split("tally/more.py\n")[0], re.DOTALL
    )
    assert apply_blocks(ended(CORE), [TextBlock(*block) for block in blocks]) == NEW["tally/core.py"]
    assert answer.endswith("tally/more.py\n<<<<<<< SEARCH\n=======\ndef more(): ...\n>>>>>>> REPLACE\n\n")


TREES = st.dictionaries(
    st.sampled_from(["a.py", "b.py", "lib/c.py", "lib/d.md", "e.txt"]),
    st.lists(st.sampled_from("pqrstuv"), min_size=1, max_size=12).map("\n".join),
)


@settings(max_examples=120, deadline=None)
@given(TREES, TREES)
def test_the_diffs_applied_to_the_old_tree_give_the_new_one(old: dict[str, str], new: dict[str, str]) -> None:
    old, new = old | {"same.py": "same"}, new | {"same.py": "same"}
    result = file_changes(old, new)[0]
    tree = {path: text for path, text in old.items() if path in new}
    for path in set(old) | set(new):  # what is left out is only a last line end
        change = next((change for change in result if change.path == path), None)
        if change is None and path in new and path in old:
            assert ended(new[path]) == ended(old[path])
            tree[path] = new[path]
    text = "\n".join(one.text for one in release(old, new)) + "\n"
    for part in re.split(r"(?m)^(?=diff --git )", text)[1:]:
        found = re.match(r"diff --git a/(\S+) b/(\S+)\n", part)
        assert found
        body = part.rstrip("\n").split("\ntally 1.0 to")[0] + "\n"
        tree[found[2]] = reader.apply("" if "new file mode" in body else old[found[1]], body)
    assert tree == new


@pytest.mark.parametrize(
    ("old", "new", "noise"),
    [
        ("version = '1.2.3'  # 2024-01-01\n", "version = '1.3.0rc1'  # 2024-02-01\n", True),
        ("version = '1.2.3'\n", "version = '1.3.0'\nother = 1\n", False),
        ("info = (1, 2, 3)  # (c) 2023\n", "info = (1, 3, 0)  # (c) 2024\n", True),
        ("return x + 1\n", "return x + 2\n", False),
        ("x = 1", "x = 1\n", True),
        ("moved\none\ntwo\n", "one\ntwo\nmoved\n", False),
        ("if x:\n    y()\n    z()\n", "if x:\n    y()\nz()\n", False),
        ("".join(f"a{n}\n" for n in range(100)), "".join(f"b{n}\n" for n in range(100)), True),
        ("".join(f"old {chr(97 + n)}\n" for n in range(20)), "".join(f"new {chr(97 + n)}\n" for n in range(20)), False),
        (None, "line\n" * (LONGEST_NEW_FILE_LINES + 1), True),
        (None, "line\n" * LONGEST_NEW_FILE_LINES, False),
    ],
)
def test_noise_is_distinguished_from_change(old: str | None, new: str, noise: bool) -> None:
    assert is_noise(ProjectFileChange("f", "f", old, new)) is noise


@pytest.mark.parametrize("form", ["unified", "blocks"])
def test_no_document_is_longer_than_the_cap_and_a_change_longer_than_it_is_left_out(form) -> None:
    old = {f"m{n}.py": "".join(f"line {n} {k} {'x' * k}\n" for k in range(30)) for n in range(10)}
    new = {path: text.replace(" 7 ", " seven ") for path, text in old.items()}
    old["long.py"] = "".join(f"{k} {'word' * k}\n" for k in range(60))
    new["long.py"] = old["long.py"].replace("wordword", "drow")
    found = release(old, new, form=form, longest_chars=3000)
    assert len(found) > 1
    assert all(len(one.text) <= 3000 for one in found)
    assert [one.path for one in found] == [f"1.0..1.1/{form}-{n}" for n in range(len(found))]
    assert all(any(f"m{n}.py" in one.text for one in found) for n in range(10))
    assert not any("long.py" in one.text for one in found)


def test_a_document_s_licence_is_that_of_all_its_files() -> None:
    old = {"a.py": "x = one\n", "b.py": "x = one\n"}
    new = {"a.py": "x = two\n", "b.py": "x = three\n"}
    before, first, second = records(old, "1"), records(new, "2", "MIT OR Zlib")[:1], records(new, "2", "Apache-2.0")[1:]
    assert release_diffs(before, first + second)[0].licence == Licence("Apache-2.0 AND (MIT OR Zlib)", "file")
    assert release_diffs(before, first + records(new, "2", "")[1:])[0].licence == Licence("", "none")


def test_nothing_of_note_gives_no_document_and_mixed_projects_are_refused() -> None:
    assert release(OLD, OLD) == release({}, NEW) == []
    with pytest.raises(ValueError, match="between two versions of one project"):
        release_diffs(records(OLD, "1"), records(OLD, "2") + records(NEW, "3"))
