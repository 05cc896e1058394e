"""Search: ripgrep and its replacement answer with the same rows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.tools.glob import GlobTool
from etude.agent.harness.tools.grep import GrepTool
from etude.agent.harness.tools.tool import ToolContext, ToolError
from etude.agent.workspace import scripts
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.scripts import search_tree
from etude.agent.workspace.search import Query, Searcher, SearchFailed, _clean, _ripgrep
from etude.agent.workspace.workspace import Workspace

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
async def test_a_bad_pattern_and_a_slow_one_are_reported(tmp_path: Path, ripgrep: bool) -> None:
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
@settings(max_examples=40, deadline=None)
@given(
    tree=trees(), only=filters, mode=st.sampled_from(["content", "files", "count", "glob"]), context=st.integers(0, 2)
)
def test_any_tree_with_any_ignore_rules_is_searched_alike(
    tmp_path_factory: Any, tree: dict[str, str], only: Any, mode: Any, context: int
) -> None:
    root = tmp_path_factory.mktemp("tree")
    plant(root, tree)
    query = Query(mode, "total", context=context if mode == "content" else 0, **only)
    compare(root, query)


def compare(root: Path, query: Query) -> list[str]:
    """The rows of both, which must be equal."""

    def rows(argv: list[str]) -> tuple[bool, list[str]]:
        done = subprocess.run(argv, cwd=root, capture_output=True)
        assert done.returncode in (0, 1), (argv, done.stderr)
        return done.returncode == 0, [_clean(row) for row in done.stdout.decode("utf-8", "replace").split("\n")]

    ours = rows([sys.executable, *scripts.command("search_tree", json.dumps(vars(query)))[1:]])
    assert ours == rows(_ripgrep(query))
    return [row for row in ours[1] if row]


# Names as projects have them: routes, colons, spaces, braces.
NAMES = [
    "a",
    "b.ts",
    "a.test.ts",
    "[id]",
    "[...all]",
    "(auth)",
    "{id}.ts",
    "a:b.txt",
    "x y.md",
    "#1",
    "!b",
    "a,b",
    "$id",
    "é",
    "-x",
    "[a",
]
names = st.sampled_from(NAMES)
folders = st.lists(names, max_size=2)
PIECES = [
    "*",
    "**",
    "?",
    "[",
    "]",
    "{",
    "}",
    ",",
    "!",
    "^",
    "-",
    "/",
    "./",
    "\\",
    ":",
    "#",
    " ",
    "a",
    "b",
    ".ts",
    "[ab]",
    "{a,b}",
    "[[:alpha:]]",
]
any_globs = st.lists(st.one_of(st.sampled_from(PIECES), names), min_size=1, max_size=5).map("".join)


@st.composite
def planted(draw: Any) -> dict[str, str]:
    tree: dict[str, str] = {}
    for path in draw(
        st.lists(st.tuples(folders, names).map(lambda parts: "/".join([*parts[0], parts[1]])), min_size=1, max_size=5)
    ):
        if not any(other.startswith(path + "/") or path.startswith(other + "/") for other in tree):
            tree[path] = "total\n"
    return tree


@needs_ripgrep
@pytest.mark.parametrize("glob", ["?", "??", "[é]", "[é][é]", "é", "*é*", "?.py", "??.py", "[!a].py", "{é,b}.py"])
def test_globs_match_bytes_of_names_beyond_ascii_with_and_without_ripgrep(tmp_path: Any, glob: str) -> None:
    plant(
        tmp_path,
        {
            "é": "total\n",
            "é.py": "total\n",
            "a.py": "total\n",
            "b.py": "total\n",
            ".gitignore": "?.txt\n",
            "é.txt": "total\n",
        },
    )
    for mode in ("content", "files", "glob"):
        compare(tmp_path, Query(mode, "" if mode == "glob" else "total").only(glob, str(tmp_path)))


@needs_ripgrep
@settings(max_examples=40, deadline=None)
@given(tree=planted(), glob=any_globs, mode=st.sampled_from(["content", "files", "glob"]), data=st.data())
def test_any_glob_finds_the_same_with_and_without_ripgrep(
    tmp_path_factory: Any, tree: dict[str, str], glob: str, mode: Any, data: Any
) -> None:
    root = tmp_path_factory.mktemp("tree")
    plant(root, tree)
    folder = data.draw(st.sampled_from([".", *sorted({path.rsplit("/", 1)[0] for path in tree if "/" in path})]))
    try:
        query = Query(mode, "" if mode == "glob" else "total", path=folder).only(glob, str(root))
    except SearchFailed as refused:
        assert "expands to more than" in str(refused)
        return
    compare(root, query)


@settings(max_examples=40, deadline=None)
@given(tree=planted(), data=st.data())
def test_a_file_is_found_by_its_path_however_it_is_written(
    tmp_path_factory: Any, tree: dict[str, str], data: Any
) -> None:
    root = tmp_path_factory.mktemp("tree")
    plant(root, tree)
    path = data.draw(st.sampled_from(sorted(tree)))
    parts = path.split("/")
    depth = data.draw(st.integers(0, len(parts) - 1))
    folder, inner = "/".join(parts[:depth]) or ".", "/".join(parts[depth:])
    ways = [
        f"./{inner}",
        f"/{inner}",
        f"**/{inner}",
        f"{root}/{path}",
        path,
        f"{'/'.join(parts[:-1])}//{parts[-1]}" if parts[1:] else path,
    ]
    ways += [inner] if not inner.startswith("!") else []
    ways += [inner.replace("/", "\\")] if not any(f"/{c}" in inner for c in "!#[{") else []
    way = data.draw(st.sampled_from([way for way in ways if not way.startswith("!")]))
    query = Query("glob", path=folder).only(way, str(root))
    request = json.dumps(vars(query))
    done = subprocess.run([sys.executable, *scripts.command("search_tree", request)[1:]], cwd=root, capture_output=True)
    assert path in done.stdout.decode().split("\n"), (way, folder, query)


@pytest.mark.parametrize("ripgrep", [False, pytest.param(True, marks=needs_ripgrep)])
@pytest.mark.parametrize(
    ("glob", "folder", "found"),
    [
        ("./src/*.ts", ".", "src/a.ts"),
        ("sub/*.txt", "pkg", "pkg/sub/a.txt"),
        ("pkg/sub/*.txt", "pkg", "pkg/sub/a.txt"),
        ("/sub/a.txt", "pkg", "pkg/sub/a.txt"),
        ("a:b.txt", ".", "a:b.txt"),
        ("*:*.txt", ".", "a:b.txt"),
        ("app/[id]/page.tsx", ".", "app/[id]/page.tsx"),
        ("app/[id]/**", ".", "app/[id]/page.tsx"),
        ("[id]/page.tsx", "app", "app/[id]/page.tsx"),
        ("src\\a.ts", ".", "src/a.ts"),
        ("src/", ".", "src/a.ts"),
        ("**.tsx", ".", "app/[id]/page.tsx"),
        ("src/**.ts", ".", "src/a.ts"),
        ("*.ts,*.tsx", ".", "app/[id]/page.tsx src/a.ts"),
        ("{src,app}/**/*.{ts,tsx}", ".", "app/[id]/page.tsx src/a.ts"),
        ("{src/a,pkg/sub/a}.{ts,txt}", ".", "pkg/sub/a.txt src/a.ts"),
        ("[[:alpha:]].ts", ".", "src/a.ts"),
        ("[!b].ts", ".", "src/a.ts"),
        ("[!]b].ts", ".", "src/a.ts"),
        ("src/[!]b].ts", ".", "src/a.ts"),
        ("src/[]a].ts", ".", "src/a.ts"),
        ("src/[!]a].ts", ".", ""),
        ("{a,b", ".", "{a,b"),
        ("*", "pkg", "pkg/sub/a.txt"),
        ("B.ts", ".", ""),
    ],
)  # fmt: skip
async def test_globs_find_what_a_person_means(
    tmp_path: Path, ripgrep: bool, glob: str, folder: str, found: str
) -> None:
    plant(tmp_path, dict.fromkeys(["src/a.ts", "pkg/sub/a.txt", "a:b.txt", "app/[id]/page.tsx", "{a,b"], "x\n"))
    workspace = Workspace(LocalFolder(tmp_path))
    for mode in ("glob", "files"):
        query = Query(mode, "" if mode == "glob" else "x", path=folder).only(glob, workspace.root)
        assert (await Searcher(workspace, ripgrep=ripgrep).rows(query, 20)).rows == found.split()


def test_a_glob_of_too_many_alternatives_is_refused() -> None:
    with pytest.raises(SearchFailed, match="expands to more than 128 patterns"):
        Query("glob").only("{a,b}" * 10)


PATTERNS = [
    "total$", "^total", "^.otal", "tota.$", r"\btotal\b", "[[:alpha:]]+l", "[[:^alpha:]]", "{a,b", "a{,2}t", r"\"total\"", "(?<=x )total",
    "(?i)TOTAL",
    "(?P<n>to)tal", r"\x{74}otal", "é", "[^a]otal", r"\d", "to(tal|)$", "total{1,2}", r"total\s*$", r"\.", "a|b|", "}", "]",
]  # fmt: skip
DATA = [
    b"total\r\nx total\r\n", b"\xef\xbb\xbftotal\nb", "total é\nx total".encode("utf-16"), b"caf\xe9 total\n", b'"total" 1 {a,b\n',
    b"a}\n]\n.\n", b"total\0\n",
]  # fmt: skip


@needs_ripgrep
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_a_pattern_finds_the_same_with_and_without_ripgrep(tmp_path: Path, pattern: str) -> None:
    for number, data in enumerate(DATA):
        (tmp_path / f"{number}.txt").write_bytes(data)
    workspace = Workspace(LocalFolder(tmp_path))
    for mode in ("content", "files", "count"):
        first, second = [
            await Searcher(workspace, ripgrep=there).rows(Query(mode, pattern), 20) for there in (True, False)
        ]
        assert first == second and first.rows, mode


@pytest.mark.parametrize(
    "pattern", ["[a-z&&[^aeiou]]+", "[[:^alpha:]0-9]", "[a-z--t]", "[a-z~~t]", "[to[ta]]l", "[+--]"]
)
async def test_a_class_that_python_would_read_as_another_is_refused_without_ripgrep(
    tmp_path: Path, pattern: str
) -> None:
    (tmp_path / "a.txt").write_text("total 1\n")
    searcher = Searcher(Workspace(LocalFolder(tmp_path)), ripgrep=False)
    with pytest.raises(SearchFailed, match="need ripgrep"):
        await searcher.rows(Query("content", pattern), 20)


@needs_ripgrep
@pytest.mark.filterwarnings("ignore:Possible (nested|set):FutureWarning")
@given(st.text("[]^\\&-~:ab", min_size=1, max_size=8).map(lambda inner: f"[{inner}]"))
@settings(deadline=None, max_examples=150)
def test_a_class_of_any_characters_is_read_alike_or_refused(pattern: str) -> None:
    lines = [*"[]^\\&-~:abcz_", "a]", "]b", "&&"]
    done = subprocess.run(
        ["rg", "--no-config", "--crlf", "--regexp", pattern], input="\n".join(lines), capture_output=True, text=True
    )
    try:
        ours = re.compile(search_tree.pythonic(pattern))
    except (re.error, ValueError):
        return
    if done.returncode in (0, 1):
        assert done.stdout.splitlines() == [line for line in lines if ours.search(line)]


async def test_a_named_file_that_is_binary_says_so_and_a_newline_in_a_pattern_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bin").write_bytes(b"total\0")
    settings = HarnessSettings.full(preset="search_replace")
    context = ToolContext(Workspace(LocalFolder(tmp_path)), settings, (), names=preset_of(settings).names)
    for mode in ("content", "files", "count"):
        with pytest.raises(ToolError, match="bin is binary"):
            await GrepTool().run({"pattern": "total", "path": "bin", "mode": mode}, context)
    for pattern in ("a\nb", r"a\nb", r"\\\na"):
        with pytest.raises(ToolError, match="single lines"):
            await GrepTool().run({"pattern": pattern}, context)
    for pattern in (r"\\na", r"x[^\n]*1", r"x[^]\n]*1"):
        assert (await GrepTool().run({"pattern": pattern}, context)).text == "no match"
    for pattern in (r"[^a]\n", r"\[^\n]", r"[\n]"):
        with pytest.raises(ToolError, match="single lines"):
            await GrepTool().run({"pattern": pattern}, context)
    (tmp_path / "src").mkdir()
    assert "src is a folder, use src/**" in (await GlobTool().run({"pattern": "src"}, context)).text
    for pattern in (r"src\foo.py", "~/x", "$HOME/x", "C:/x", "[src", "../x"):
        assert (await GlobTool().run({"pattern": pattern}, context)).text == "no file matches"


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("{" * 1500 + "a" + "}" * 1500, "longer than 1000 characters"),
        ("{" * 20_000, "longer than 1000 characters"),
        ("{" * 400 + "a" + "}" * 400, "more than 10 braces within braces"),
        ("{a,b,c,d,e,f,g,h,i}" * 3, "more than 128 patterns"),
    ],
)
def test_a_glob_that_no_person_writes_is_refused_with_the_reason(glob: str, said: str) -> None:
    with pytest.raises(SearchFailed, match=f"{said}; use a simpler one"):
        Query("files").only(glob)


def test_braces_within_braces_are_expanded() -> None:
    assert set(Query("files").only("{a,{b,{c,d}}}.py").names) >= {"a.py", "b.py", "c.py", "d.py"}


@given(st.text("{}[]*?,!\\/ab", max_size=1000))
@settings(max_examples=50)
def test_any_glob_is_expanded_or_refused(glob: str) -> None:
    try:
        Query("files").only(glob)
    except SearchFailed as refused:
        assert "use a simpler one" in str(refused)
