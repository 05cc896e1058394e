"""Linters: what the repository configures and the machine has, and what an edit changed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.lint.finding import (
    LinterError,
    LintFinding,
    delta,
    read_eslint,
    read_go_vet,
    read_pyright,
    read_ruff,
    read_tsc,
)
from etude.agent.harness.lint.lints import LintRunner
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.tools.tool import ToolContext
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.workspace import Workspace

codes = st.sampled_from(["E1", "E2"])
finding = st.builds(
    LintFinding, st.sampled_from("ab"), st.integers(1, 9), st.just(1), st.just("ruff"), codes, st.just("m")
)
findings = st.lists(finding, max_size=6)

# A stand-in that complains about every line with the word bad, as eslint would report it.
ESLINT = f"""#!{sys.executable} -I
import json, os, sys
rest = sys.argv[sys.argv.index("json") + 1:]
texts = {{rest[2]: sys.stdin.read()}} if rest[:1] == ["--stdin"] else {{path: open(path).read() for path in rest}}
print(json.dumps([
    {{"filePath": os.path.abspath(path), "messages": [
        {{"line": number, "column": 1, "ruleId": "no-bad", "message": "bad word"}}
        for number, line in enumerate(text.split("\\n"), 1) if "bad" in line
    ]}}
    for path, text in texts.items()
]))
sys.exit(1)
"""


def node_project(root: Path, program: str = ESLINT) -> None:
    (root / "node_modules/.bin").mkdir(parents=True)
    (root / "node_modules/.bin/eslint").write_text(program)
    (root / "node_modules/.bin/eslint").chmod(0o755)
    (root / "package.json").write_text('{"eslintConfig": {}}')
    (root / "a.js").write_text("fine\nbad one\n")
    (root / "b.js").write_text("bad\n")


@given(before=findings, after=findings)
def test_the_difference_is_what_came_and_what_went(before: list[LintFinding], after: list[LintFinding]) -> None:
    new, gone = delta(before, after)
    assert len(before) + len(new) - len(gone) == len(after)
    assert delta(before, [*reversed(before)]) == ([], [])


async def test_the_projects_own_linter_is_run_and_the_change_is_reported(tmp_path: Path) -> None:
    node_project(tmp_path)
    settings = HarnessSettings.full(preset="search_replace")
    there = ToolContext(Workspace(LocalFolder(tmp_path)), settings, ())
    tool = preset_of(settings).tools["read_lints"]
    first = await tool.run({"paths": ["a.js", "b.js"]}, there)
    assert first.text == "a.js:2:1 eslint no-bad: bad word\nb.js:1:1 eslint no-bad: bad word"
    (tmp_path / "a.js").write_text("new\nfine\n")
    (tmp_path / "b.js").write_text("bad\nbad again\n")
    second = await tool.run({"paths": ["b.js", "a.js"]}, there)
    assert second.text.endswith("since the last look: 1 new, 1 gone")
    assert {name: second.facts[name] for name in ("lints", "lints_new", "lints_gone")} == {
        "lints": 2,
        "lints_new": 1,
        "lints_gone": 1,
    }
    assert (await tool.run({"paths": ["package.json"]}, there)).text.startswith("no linter is configured here for this")


async def test_a_sessions_change_is_measured_against_the_files_as_they_were(tmp_path: Path) -> None:
    node_project(tmp_path)
    settings = HarnessSettings.full(preset="search_replace")
    there = ToolContext(Workspace(LocalFolder(tmp_path)), settings, ())
    tools = preset_of(settings).tools
    await tools["search_replace"].run({"file_path": "a.js", "old_string": "bad one", "new_string": "good"}, there)
    await tools["search_replace"].run({"file_path": "a.js", "old_string": "good", "new_string": "good\n"}, there)
    await tools["write"].run({"file_path": "c.js", "contents": "bad\nbad\n"}, there)
    await tools["delete_file"].run({"target_file": "b.js"}, there)
    report = await there.lints.change(there.workspace.originals, within_s=60)
    assert [finding.path for finding in report.new] == ["c.js", "c.js"]
    assert [finding.path for finding in report.gone] == ["a.js", "b.js"] and report.ran == ["eslint"]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (None, "eslint: is configured here but not installed"),
        ("#!/bin/sh\necho Oops >&2; exit 2\n", "eslint: failed with exit 2: Oops"),
        ("#!/bin/sh\necho no json\n", "eslint: no json"),
        ("#!/bin/sh\nsleep 30\n", "eslint: took longer than 0.5 s; name fewer files"),
    ],
)
async def test_a_linter_that_fails_is_said_to(
    tmp_path: Path, program: str | None, words: str, monkeypatch: Any
) -> None:
    node_project(tmp_path, program or "")
    if program is None:
        shutil.rmtree(tmp_path / "node_modules")
    report = await LintRunner(Workspace(LocalFolder(tmp_path, env={"PATH": "/usr/bin:/bin"})), 0.5).check(["a.js"])
    assert report.problems == [words] and not report.ran and not report.seen


@pytest.mark.skipif(shutil.which("ruff") is None, reason="there is no ruff on the path")
async def test_ruff_is_run_where_pyproject_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff.lint]\nselect = ['F']\n")
    (tmp_path / "a.py").write_text("import os\n")
    lints = LintRunner(Workspace(LocalFolder(tmp_path)), 30)
    report = await lints.check([])
    assert [str(one) for one in report.findings] == ["a.py:1:8 ruff F401: `os` imported but unused"]
    (tmp_path / "a.py").write_text("x = 1\n")
    report = await lints.check([])
    assert (report.findings, len(report.gone), report.new) == ([], 1, [])


def test_each_linters_own_words_are_read() -> None:
    ruff = json.dumps(
        [{"filename": "/w/a.py", "location": {"row": 2, "column": 3}, "code": "F401", "message": "unused"}]
    )
    assert read_ruff(ruff, "/w") == [LintFinding("a.py", 2, 3, "ruff", "F401", "unused")]
    row = {
        "file": "/w/s/a.py",
        "range": {"start": {"line": 0, "character": 4}},
        "message": "bad\n  more",
        "rule": "reportX",
    }
    assert read_pyright(json.dumps({"generalDiagnostics": [row]}), "/w") == [
        LintFinding("s/a.py", 1, 5, "pyright", "reportX", "bad")
    ]
    eslint = [
        {"filePath": "/w/a.js", "messages": [{"line": 1, "column": 2, "ruleId": None, "message": "Parsing error"}]}
    ]
    assert read_eslint(json.dumps(eslint), "/w") == [LintFinding("a.js", 1, 2, "eslint", "", "Parsing error")]
    assert read_tsc("src/a.ts(3,7): error TS2322: Type 'x'.\n  more\n", "/w") == [
        LintFinding("src/a.ts", 3, 7, "tsc", "TS2322", "Type 'x'.")
    ]
    assert read_go_vet("# pkg\nvet: ./a.go:4:2: undefined: x\n", "/w") == [
        LintFinding("a.go", 4, 2, "go vet", "", "undefined: x")
    ]
    with pytest.raises(LinterError, match="panic"):
        read_ruff("panic", "/w")


def test_a_number_that_no_file_has_is_no_place() -> None:
    digits = "9" * 5000
    [finding] = read_tsc(f"a.ts({digits},3): error TS1: m", "/w")
    assert (finding.line, finding.column) == (999_999_999, 3)
    rows = [{"filePath": "/w/a.js", "messages": [{"line": None, "column": 2.5, "ruleId": 7, "message": 5}]}]
    [finding] = read_eslint(json.dumps(rows), "/w")
    assert (finding.path, finding.line, finding.code, finding.message) == ("a.js", 0, "7", "5")


@pytest.mark.parametrize(
    "output",
    ["[1]", '{"a": 1}', "[[]]", '[{"filePath": 1, "messages": [{}]}]', "NaN", "[1e999]", "[" * 600 + "]" * 600],
)
async def test_a_linter_of_the_repository_that_prints_anything_is_a_problem(tmp_path: Path, output: str) -> None:
    program = tmp_path / "node_modules" / ".bin" / "eslint"
    program.parent.mkdir(parents=True)
    (tmp_path / "said").write_text(output)
    program.write_text(f"#!/bin/sh\ncat {tmp_path / 'said'}\n")
    program.chmod(0o755)
    (tmp_path / ".eslintrc.json").write_text("{}")
    (tmp_path / "a.js").write_text("x")
    report = await LintRunner(Workspace(LocalFolder(tmp_path)), 10).check(["a.js"])
    assert len(report.problems) == 1 and report.problems[0].startswith("eslint: ")
