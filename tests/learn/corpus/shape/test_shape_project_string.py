"""A project string holds every file once, in an order that follows from the imports, within its bucket."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.licence.licence import Licence
from etude.learn.corpus.record import Kind, TextRecord
from etude.learn.corpus.shape.diffs import Section, cut
from etude.learn.corpus.shape.project_string import (
    ORDERS,
    README_HEAD_CHARS,
    TREE_LINES,
    Order,
    ProjectString,
    project_strings,
)

HEADING = re.compile(r"^==> (.*?)( \(continued\))? <==\n", re.MULTILINE)
FILES = {
    "README.md": "# Tally\nCounts.\n",
    "docs/guide.md": "Guide.\n",
    "tally/zero.py": "ZERO = 0\n",
    "tally/core.py": "from . import zero\nfrom tally.api import show\n",
    "tally/api.py": "from .zero import ZERO\n\ndef show(): ...",
    "tally/__init__.py": "from .core import *\n",
    "tests/test_core.py": "from tally import core\n",
}


def record(path: str, text: str, kind: Kind = "file", project: str = "tally") -> TextRecord:
    return TextRecord(text, kind, "local", project, "1.0", "2024-01-01", path, "", Licence("MIT", "file"))


def strings(files: dict[str, str], order: Order = "dependencies", **options) -> list[ProjectString]:
    records = [record(path, text) for path, text in files.items()]
    return project_strings(records, **{"order": order, "chars_per_token": 1.0, **options})


def read_back(texts: list[str]) -> dict[str, str]:
    """The text under each path's headings, put together; the added line ends are left in."""
    found: dict[str, str] = {}
    for text in texts:
        parts = HEADING.split(text)
        assert parts[0] == ""
        for path, _, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            assert body.endswith("\n\n") or not body.strip()
            found[path] = found.get(path, "") + body[:-1]
    return found


def test_the_learning_order_is_manifest_dependencies_tests_documents_history() -> None:
    records = [record(path, text) for path, text in FILES.items()]
    records.append(record("debian/patches/fix.patch", "Fixes.\n", kind="patch"))
    (one,) = project_strings(records, order="dependencies", chars_per_token=3.0)
    assert one.paths == (
        "README.md",
        "tally/zero.py",
        "tally/api.py",
        "tally/core.py",
        "tally/__init__.py",
        "tests/test_core.py",
        "docs/guide.md",
        "debian/patches/fix.patch",
    )
    assert one.text.startswith("==> project tally 1.0 <==\nREADME.md\ndebian/patches/fix.patch\ndocs/guide.md\n")
    assert (one.bucket_tokens, one.project, one.version) == (8192, "tally", "1.0")


def test_before_a_target_come_its_neighbours_nearest_last() -> None:
    (one,) = strings(FILES, "target", target="tally/core.py")
    assert one.paths[-1] == "tally/core.py"
    assert set(one.paths[-5:-1]) == {"tally/zero.py", "tally/api.py", "tally/__init__.py", "tests/test_core.py"}
    (drawn,) = strings(FILES, "target", seed=3)
    assert drawn.paths[-1].startswith("tally/")


def test_a_cut_before_a_target_leaves_the_last_string_full() -> None:
    files = {f"pkg/m{n:02d}.py": f"VALUE = {n}\n" * 20 for n in range(40)}
    found = strings(files, "target", target="pkg/m07.py", buckets=(2000,))
    assert found[-1].paths[-1] == "pkg/m07.py"
    assert len(found[-1].text) > 1500


def test_path_order_sorts_and_random_order_is_the_seeds() -> None:
    assert strings(FILES, "path")[0].paths[1:] == tuple(sorted(set(FILES) - {"README.md"}))
    assert strings(FILES, "random", seed=1) == strings(dict(reversed(FILES.items())), "random", seed=1)
    assert len({strings(FILES, "random", seed=seed)[0].paths for seed in range(20)}) > 15


NAMES = st.text(alphabet="abc/", min_size=1, max_size=6).map(lambda name: f"x/{name.strip('/') or 'y'}.py")
TEXTS = st.text(alphabet="ab \n", min_size=1, max_size=120).filter(lambda text: text.strip() != "")


@settings(max_examples=120, deadline=None)
@given(
    st.dictionaries(NAMES | st.just("README.md"), TEXTS, min_size=1, max_size=8),
    st.sampled_from(ORDERS),
    st.integers(180, 700),
)
def test_every_text_is_there_once_and_no_string_is_longer_than_the_longest_bucket(
    files: dict[str, str], order: Order, longest: int
) -> None:
    found = strings(files, order, buckets=(longest, longest // 2))
    assert all(len(one.text) <= longest for one in found)
    assert all(len(one.text) <= one.bucket_tokens for one in found)
    assert all(one.bucket_tokens == longest or len(one.text) <= longest // 2 for one in found)
    back = read_back([one.text for one in found])
    back.pop("project tally 1.0")
    assert {path: text.replace("\n", "") for path, text in back.items()} == {
        p: t.replace("\n", "") for p, t in files.items()
    }
    assert set(files) == {path for one in found for path in one.paths}


def test_a_long_readme_is_split_between_manifest_and_documents() -> None:
    readme = "".join(f"Line {n}.\n" for n in range(README_HEAD_CHARS // 5))
    (one,) = strings({**FILES, "README.md": readme})
    head, rest = one.text.split("==> README.md <==\n")[1], one.text.split("==> README.md (continued) <==\n")[1]
    head, rest = head.split("\n\n==> ")[0] + "\n", rest.split("\n\n==> ")[0] + "\n"
    assert head + rest == readme
    assert len(head) <= README_HEAD_CHARS
    assert one.text.index("tests/test_core.py <==") < one.text.index("(continued)")


def test_a_long_list_of_paths_says_how_many_more_there_are() -> None:
    (one,) = strings({f"f{n:04d}.txt": "x\n" for n in range(TREE_LINES + 7)}, buckets=(1_000_000,))
    assert "\n… and 7 more\n" in one.text
    assert one.text.count("<==") == TREE_LINES + 8


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(60, 150), st.booleans())
def test_files_that_fit_are_never_cut_and_groups_are_as_full_as_goes(
    sizes: list[int], longest: int, from_the_end: bool
) -> None:
    sections = [Section(f"{n}", "x" * min(size, longest - 30)) for n, size in enumerate(sizes)]
    groups = cut(sections, longest, from_the_end=from_the_end)
    assert [section for group in groups for section in group] == sections
    totals = [sum(section.chars for section in group) for group in groups]
    assert totals == [len("".join(map(str, group))) for group in groups]
    for n in range(len(groups) - 1):
        neighbour = groups[n][-1].chars + totals[n + 1] if from_the_end else totals[n] + groups[n + 1][0].chars
        assert max(totals) <= longest < neighbour


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "target", "target": "gone.py"}, "target 'gone.py' is none of the project's 7 files"),
        ({"buckets": (10,)}, "fits in 10 characters"),
        ({"chars_per_token": 0}, "0 characters a token"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strings(FILES, **options)


def test_records_must_be_of_one_project_once_each() -> None:
    one, other = record("a.py", "x"), record("b.py", "x", project="other")
    with pytest.raises(ValueError, match="2 projects"):
        project_strings([one, other], order="path", chars_per_token=3.0)
    with pytest.raises(ValueError, match=r"a\.py#file comes twice"):
        project_strings([one, one], order="path", chars_per_token=3.0)
    assert project_strings([], order="path", chars_per_token=3.0) == []
