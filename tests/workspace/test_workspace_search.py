"""Search: ripgrep and the program that stands in for it answer with the same rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.workspace import scripts
from etude.workspace.local_folder import LocalFolder
from etude.workspace.search import Query, Searcher, SearchFailed, _ripgrep
from etude.workspace.workspace import Workspace

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="there is no ripgrep here")

FILES = {
    "a.py": "def total(items):\n    return sum(items)\n",
    "a/one.py": "total = 1\r\nother\r\n",
    "a/b/deep.txt": "x\ntotal\n\n\n\nTotal\ny\nz\ntotal again\n",
    "a.d/z.js": "no newline total",
    "build/out.py": "total\n",
    "keep/build/x.py": "total\n",
    "logs/run.log": "total\n",
    "logs/keep.log": "total\n",
    ".hidden/h.py": "total\n",
    ".git/config": "total\n",
    "bin": "total\0\n",
    "sp ace.py": "total é ünï\n",
    "empty.py": "",
    ".gitignore": "/build/\n*.log\n!keep.log\n# a comment\nnode_modules\n",
    "a/.gitignore": "b/*.md\n!important.md\n",
    "a/b/x.md": "total\n",
    "a/b/important.md": "total\n",
    "node_modules/p/i.js": "total\n",
}


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())


async def both(root: Path, query: Query) -> tuple[Any, Any]:
    workspace = Workspace(LocalFolder(root))
    return tuple([await Searcher(workspace, ripgrep=with_it).rows(query, 20) for with_it in (True, False)])  # pyright: ignore


QUERIES = [
    Query("content", "total"),
    Query("content", "total", context=1),
    Query("content", "total", context=2, path="a"),
    Query("content", "total", path="a.py"),
    Query("content", "TOTAL", ignore_case=True),
    Query("content", r"^\s+return\b"),
    Query("content", "é ünï"),
    Query("content", "nowhere at all"),
    Query("content", "-total|--"),
    Query("files", "total"),
    Query("files", "total", globs=("*.py",)),
    Query("files", "total", globs=("a/**",)),
    Query("files", "total", globs=("!*.py",)),
    Query("count", "t", path="a"),
    Query("files", "total", names=("*.py",)),
    Query("glob", names=("*.{js,py}",)),
    Query("glob", names=("x*", "z*")),
    Query("glob", globs=("*.py",)),
    Query("glob", globs=("**/*.{js,md}",)),
    Query("glob", globs=("a/*",)),
    Query("glob", globs=("/a/*.py",)),
    Query("glob", globs=("build",)),
    Query("glob", globs=("[ab]*",)),
    Query("glob", globs=("*",)),
    Query("glob", globs=("b/**",), path="a"),
    Query("glob", globs=("?.py",)),
]


@needs_ripgrep
@pytest.mark.parametrize(
    "query", QUERIES, ids=lambda query: f"{query.mode}-{query.pattern or query.globs}-{query.path}"
)
async def test_the_stand_in_answers_as_ripgrep_does(tmp_path: Path, query: Query) -> None:
    plant(tmp_path, FILES)
    ours, theirs = await both(tmp_path, query)
    assert ours == theirs


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*", "all"), ("**", "all"), ("**/*", "all"), ("", "all"), ("*.log", "logs/keep.log"), ("**/*.log", "logs/keep.log"),
        ("logs/*.log", "logs/keep.log logs/run.log"), ("build/**", ""), ("a/**/*.md", "a/b/important.md a/b/x.md"),
    ],
)  # fmt: skip
async def test_no_glob_leads_into_an_ignored_folder(tmp_path: Path, glob: str, found: str) -> None:
    plant(tmp_path, FILES)
    every = "a/b/deep.txt a/b/important.md a/one.py a.d/z.js a.py bin empty.py keep/build/x.py logs/keep.log".split()
    workspace = Workspace(LocalFolder(tmp_path))
    for with_it in (True, False) if shutil.which("rg") else (False,):
        rows = await Searcher(workspace, ripgrep=with_it).rows(Query("glob").only(glob), 20)
        shown = [
            row for row in rows.rows if not row.split("/")[-1].startswith(".") and not row.startswith((".", "sp "))
        ]
        assert shown == (every if found == "all" else found.split())


async def test_newest_files_come_first_if_asked_for(tmp_path: Path) -> None:
    plant(tmp_path, {"old.py": "x", "new.py": "x", "mid.py": "x"})
    for age, name in enumerate(["new.py", "mid.py", "old.py"]):
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    searcher = Searcher(Workspace(LocalFolder(tmp_path)), ripgrep=False)
    query = Query("glob", globs=("*.py",), order="mtime")
    assert (await searcher.rows(query, 20)).rows == ["new.py", "mid.py", "old.py"]
    if shutil.which("rg"):
        assert (await Searcher(Workspace(LocalFolder(tmp_path)), ripgrep=True).rows(query, 20)).rows == [
            "new.py",
            "mid.py",
            "old.py",
        ]


@pytest.mark.parametrize("ripgrep", [False, pytest.param(True, marks=needs_ripgrep)])
async def test_a_bad_pattern_and_a_slow_one_are_told(tmp_path: Path, ripgrep: bool) -> None:
    plant(tmp_path, {"a.txt": "a" * 40 + "b\n"})
    searcher = Searcher(Workspace(LocalFolder(tmp_path)), ripgrep=ripgrep)
    with pytest.raises(SearchFailed, match="bad pattern"):
        await searcher.rows(Query("content", "("), 20)
    if not ripgrep:  # ripgrep's expressions can't explode
        with pytest.raises(SearchFailed, match="timed out"):
            await searcher.rows(Query("content", "(a+)+$"), 0.5)


async def test_more_rows_than_are_read_are_said_to_be_more(tmp_path: Path) -> None:
    plant(tmp_path, {"big.txt": "some text that matches\n" * 60_000})
    found = await Searcher(Workspace(LocalFolder(tmp_path))).rows(Query("content", "text"), 60)
    assert not found.whole and len(found.rows) > 1000
    assert all(row.startswith("big.txt:") for row in found.rows[:-1])


parts = st.sampled_from(["a", "b", "a.py", "b.txt", "c.py", "build", "x y"])
paths = st.lists(parts, min_size=1, max_size=3).map("/".join)
lines = st.lists(st.sampled_from(["total", "x", "", "Total total", "  y"]), max_size=6).map("\n".join)
RULES = "a|/a|a/|*.py|!a.py|b/*|**/c.py|a/**|!b|build/|/*|!/b|?.py|[ab].py|#x|a/b|\\!a|x y"
rules = st.lists(st.sampled_from(RULES.split("|")), max_size=4).map(lambda rows: "".join(f"{row}\n" for row in rows))
globs = st.lists(st.sampled_from(["*.py", "!b*", "a/**", "/a", "**/b", "{a,b}*", "build", "!a/"]), max_size=2)
# A call has names or globs, never both (`Query.only`).
filters = st.one_of(
    globs.map(lambda found: {"globs": tuple(found)}),
    st.sampled_from([{"names": ("*.py",)}, {"names": ("?.*", "build")}]),
)


@st.composite
def trees(draw: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in draw(st.lists(paths, max_size=6)):
        if not any(other.startswith(path + "/") or path.startswith(other + "/") for other in found):
            found[path] = draw(lines)
    folders = sorted({"", *(f"{path.rsplit('/', 1)[0]}/" for path in found if "/" in path)})
    return found | {
        f"{folder}.gitignore": draw(rules) for folder in draw(st.lists(st.sampled_from(folders), max_size=2))
    }


@needs_ripgrep
@settings(max_examples=60, deadline=None)
@given(
    tree=trees(), only=filters, mode=st.sampled_from(["content", "files", "count", "glob"]), context=st.integers(0, 2)
)
def test_any_tree_with_any_ignore_rules_is_searched_alike(
    tmp_path_factory: Any, tree: dict[str, str], only: Any, mode: Any, context: int
) -> None:
    root = tmp_path_factory.mktemp("tree")
    plant(root, tree)
    query = Query(mode, "total", context=context if mode == "content" else 0, **only)
    request = json.dumps(vars(query))
    ours = subprocess.run([sys.executable, *scripts.command("search_tree", request)[1:]], cwd=root, capture_output=True)
    theirs = subprocess.run(_ripgrep(query), cwd=root, capture_output=True)
    rows = [row.removeprefix(b"./") for row in theirs.stdout.split(b"\n")]
    assert ours.stdout.split(b"\n") == rows, ours.stderr
    assert (ours.returncode == 0) == (theirs.returncode == 0)
