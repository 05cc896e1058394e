"""The next version of a suite: its name, its rubrics, and how the tests of new tasks run."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.renewal import command_of, next_version, renewal
from etude.evaluate.bench.suites.account import describe_account
from etude.evaluate.bench.suites.folder import FolderSuite
from etude.evaluate.bench.suites.freeze import freeze
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.tasks.task import Task


def task(name: str, *command: str, grader: str = "commands") -> Task:
    hidden = {"command": list(command), "files": {}}
    return Task(name, "debugging", "session", f"do {name}", {"a.py": "x\n"}, (), grader, hidden, {"a.py": "y\n"})


def frozen(root: Path, version: str, names: str, after: FolderSuite | None = None, retired: str = "") -> FolderSuite:
    row = SuiteManifest.model_validate({"name": "mine", "version": version, "released": date(2026, 11, 1)})
    gone = dict.fromkeys(retired, "saturated")
    return freeze(root / version, row, [task(name) for name in names], after=after, retired=gone)


@pytest.mark.parametrize("before, after", [("1", "2"), ("3.9", "3.10"), ("2026-09", "2026-10"), ("v1b7", "v1b8")])
def test_the_last_number_of_a_version_is_raised(before: str, after: str):
    assert next_version(before) == after


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True))
def test_a_next_version_differs_and_can_be_raised_again_or_is_asked_for(version: str):
    if version[-1].isdigit():
        assert next_version(version) != version and next_version(next_version(version)) != next_version(version)
    else:
        with pytest.raises(SuiteError, match="with --version"):
            next_version(version)


def test_what_left_a_version_may_not_come_in_again_in_any_later_one(tmp_path: Path):
    first = frozen(tmp_path, "1", "abc")
    second = frozen(tmp_path, "2", "cd", first, retired="ab")
    third = frozen(tmp_path, "3", "cde", second)
    found = renewal(third, [])
    assert found.kept == ("c", "d", "e") and found.retired == {} and found.known == frozenset("abcde")
    assert [release.retired for release in third.manifest.changelog] == [(), ("a", "b"), ()]


def test_new_tasks_are_tested_as_the_suites_are_where_these_agree():
    assert command_of([task("a", "make", "check"), task("b", "make", "check"), task("c", grader="outputs")]) == (
        "make",
        "check",
    )
    assert command_of([task("a"), task("b")]) == () == command_of([])
    with pytest.raises(SuiteError, match="'make check' and pytest: say with --test-command"):
        command_of([task("a", "make", "check"), task("b")])


def test_that_no_one_drafted_rubrics_is_said_only_where_somebody_could_have():
    document = {
        "suite": "s@1", "folder": "s", "digest": "0" * 64, "tasks": ["a"], "median_changed_lines": 2, "median_files": 1,
        "median_prompt_chars": 9, "report_changed_lines": 181, "report_prompt_chars": 390, "left_out": {}, "retired": {},
        "rubrics": None,
    }  # fmt: skip
    assert "--rubrics URL#MODEL" in describe_account(document, drafts=True) and "rubrics" not in describe_account(
        document
    )
