"""Ignore rules agree with git, which is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.agent.code_index import ignore
from etude.agent.code_index.walk import walk

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed; it is the oracle")

NAMES = ["a", "b", "ab", "a.py", "b.txt", "build"]
PATHS = [
    *NAMES,
    *(f"{d}/{n}" for d in ("x", "y", "build2") for n in NAMES),
    *(f"x/z/{n}" for n in NAMES),
    "y/x/z/a",
    "y/x/z/b.txt",
]
piece = st.sampled_from(
    [
        "a",
        "b",
        "*",
        "?",
        "**",
        "x",
        "y",
        "z",
        "*.py",
        "*.txt",
        "build*",
        "[ab]",
        "[!a]",
        "[a-b]*",
        "\\a",
        "a*b",
        "[",
        "\\*",
    ]
)
pattern = st.builds(
    lambda bang, lead, parts, end: bang + lead + "/".join(parts) + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.lists(piece, min_size=1, max_size=3),
    st.sampled_from(["", "", "/", "/**", " "]),
)
rules = st.lists(pattern | st.sampled_from(["", "# note", "\\#", "!"]), max_size=5).map("\n".join)


def untracked(root: Path) -> set[str]:
    listed = ["git", "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=root, capture_output=True, check=True)
    return {path for path in done.stdout.decode().split("\0") if path}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if not (root / path).is_dir():
            (root / path).write_text("text\n")
    return root


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=rules, inner=rules, exclude=rules)
def test_the_walk_takes_what_git_takes(repository: Path, top: str, inner: str, exclude: str) -> None:
    (repository / ".gitignore").write_text(top)
    (repository / "x" / ".gitignore").write_text(inner)
    (repository / ".git" / "info" / "exclude").write_text(exclude)
    empty = {p for p in (".gitignore", "x/.gitignore") if not (repository / p).read_text()}
    assert set(walk(repository).files) == untracked(repository) - empty


def test_a_folder_inside_a_repository_keeps_the_rules_above_it(repository: Path) -> None:
    (repository / ".gitignore").write_text("*.txt\n/x/z/a\n")
    (repository / "x" / ".gitignore").write_text("!b.txt\n/ab\n")
    (repository / ".git" / "info" / "exclude").write_text("build\n")
    inside = {path.removeprefix("x/") for path in untracked(repository) if path.startswith("x/")}
    assert set(walk(repository / "x").files) == inside


def test_a_folder_that_is_no_repository_has_rules_too(fresh_lab: Callable[[], object]) -> None:
    lab = fresh_lab()
    lab.write({".gitignore": "secret.py\nout/\n", "secret.py": "x = 1\n", "out/a.py": "x = 1\n", "kept.py": "x = 1\n"})  # type: ignore[attr-defined]
    assert set(walk(lab.root).files) == {".gitignore", "kept.py"}  # type: ignore[attr-defined]


def test_an_ignore_file_that_is_a_link_or_a_pipe_is_not_read(fresh_lab: Callable[[], object], tmp_path: Path) -> None:
    lab = fresh_lab()
    lab.write({"a/x.py": "x = 1\n", "b/x.py": "x = 1\n"})  # type: ignore[attr-defined]
    (tmp_path / "rules").write_text("*.py\n")
    (lab.root / "a" / ".gitignore").symlink_to(tmp_path / "rules")  # type: ignore[attr-defined]
    os.mkfifo(lab.root / "b" / ".gitignore")  # type: ignore[attr-defined]
    assert set(walk(lab.root).files) == {"a/x.py", "b/x.py"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("*a" * 40 + "b", "a" * 250),
        ("**/a/" * 40 + "b", "a/" * 120 + "a"),
        ("*a*/" * 40 + "b", ("a" * 100 + "/") * 30 + "a"),
        ("**/*a*a*a/" * 20 + "b", ("a" * 30 + "/") * 60 + "a"),
        ("a*" * 40 + "/**", "a" * 250),
    ],
)
def test_patterns_of_many_stars_are_decided_soon(line: str, path: str) -> None:
    began = time.process_time()
    for rule in ignore.parse(line):
        assert not rule.pattern.fullmatch(path)
    assert time.process_time() - began < 5
