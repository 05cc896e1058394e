"""Tests that a row names: import and grading read the names by one rule."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.audit import leaks
from etude.tasks.fail_to_pass import CandidateRejected, FailToPassProof, prove_fail_to_pass
from etude.tasks.importers.swe_bench import named_as
from etude.tasks.importers.swe_bench_rows import SweBenchRow
from etude.tasks.importers.swe_grading import FAILED, PASSED, status_of
from etude.tasks.running.report import TestRun
from etude.tasks.running.testrun import RunReport
from etude.tasks.task import Task

FILE = "tests/test_a.py"


def here(name: str) -> str:
    """A test of FILE as reports of runs here name it."""
    return f"tests.test_a::{name}"


def found(shown: list[str], kept: list[str]) -> Task:
    """A proved task whose tests show the change or pass before and after it."""
    lists = {"fail_to_pass": [here(name) for name in shown], "pass_to_pass": [here(name) for name in kept]}
    return Task("t", "debugging", "l", "i", {}, (), "commands", lists)


def row(shown: list[str], kept: list[str]) -> SweBenchRow:
    named = [[f"{FILE}::{name}" if name.startswith("test_") else name for name in names] for names in (shown, kept)]
    return SweBenchRow("o__n-1", "o/n", "c", "", "", "", tuple(named[0]), tuple(named[1]))


def lists(task: Task) -> tuple[list[str], list[str]]:
    both = [[name.removeprefix(here("")) for name in task.hidden[key]] for key in ("fail_to_pass", "pass_to_pass")]
    return both[0], both[1]


def test_a_name_that_ends_within_a_parameter_means_all_tests_that_begin_so() -> None:
    task = found(
        ["test_p['str' has no x]", "test_p['str' has no y]", "test_q"], ["test_k[a b]", "test_k[a c]", "test_k[b]"]
    )
    named = named_as(row(["test_p['str'", "test_q"], ["test_k[a"]), task)
    assert lists(named) == (
        ["test_p['str' has no x]", "test_p['str' has no y]", "test_q"],
        ["test_k[a b]", "test_k[a c]"],
    )
    assert named.metadata["pass_to_pass_missing_here"] == 0


def test_names_that_are_none_leave_the_others_of_the_row_in_use() -> None:
    task = found(["test_two", "test_more"], ["test_base"])
    named = named_as(row(["test_two", "[100%]", "["], ["[100%]------", "test_base"]), task)
    assert lists(named) == (["test_two"], ["test_base"]) and named.metadata["names_that_are_none"] == 3


def test_a_test_that_passes_before_as_well_must_pass_and_shows_nothing() -> None:
    named = named_as(row(["test_two", "test_base"], []), found(["test_two"], ["test_base"]))
    assert lists(named) == (["test_two"], ["test_base"])
    assert named.metadata["fail_to_pass_that_passes_before"] == 1
    with pytest.raises(CandidateRejected, match="test_base passes before the change as well"):
        named_as(row(["test_base"], []), found(["test_two"], ["test_base"]))


NAMES = st.lists(st.text("ab[]", min_size=1, max_size=5).map("test_".__add__), min_size=1, max_size=6, unique=True)


@given(NAMES, st.data())
def test_import_keeps_a_name_exactly_where_grading_knows_its_status(names: list[str], data: st.DataObject) -> None:
    """All tests pass in the log that is graded, so that a name has a status if it means any test at all."""
    asked = data.draw(st.sampled_from(names)) if data.draw(st.booleans()) else data.draw(NAMES)[0]
    cut = asked[: data.draw(st.integers(6, len(asked)))]
    known = status_of(here(cut), dict.fromkeys(map(here, names), PASSED))
    try:
        kept = lists(named_as(row([cut], []), found(names, [])))[0]
    except CandidateRejected:
        kept = []
    assert bool(kept) == (known == PASSED)
    assert kept == ([cut] if cut in names else sorted(name for name in names if kept and name.startswith(cut)))


async def proof(before: TestRun, after: TestRun, *, xfail: bool) -> FailToPassProof:
    async def run(files: Mapping[str, bytes]) -> RunReport:
        return RunReport(after if files["state"] == b"after" else before, "")

    return await prove_fail_to_pass({"state": b"before"}, {"state": b"after"}, run, xfail=xfail)


async def test_a_test_that_fails_as_its_marker_says_shows_a_change_of_a_row() -> None:
    """A strict expected failure that passes before the change counts as failed there."""
    both = frozenset({"two", "strict"})
    before = TestRun(frozenset({"base"}), both | {"wrong"}, 1, xfailed=frozenset({"wrong"}))
    after = TestRun(
        frozenset({"base", "two"}), frozenset({"strict", "wrong"}), 1, xfailed=frozenset({"strict", "wrong"})
    )
    proved = await proof(before, after, xfail=True)
    assert (proved.fail_to_pass, proved.pass_to_pass) == (("strict", "two"), ("base", "wrong"))
    assert proved.xfailed == ("strict", "wrong")
    plain = await proof(before, after, xfail=False)
    assert (plain.fail_to_pass, plain.pass_to_pass, plain.xfailed) == (("two",), ("base",), ())


def test_a_file_that_the_reference_only_moves_is_no_leak() -> None:
    """The workspace holds the text at its old path, and to move it is the work; a copy that stays is a leak."""
    text = "def two():\n    return 2\n"
    files = {"old.py": text, "test_a.py": "from new import two\n"}
    moved = Task(
        "t", "refactors", "l", "i", files, (), "commands", {}, {"new.py": text}, metadata={"removed": ["old.py"]}
    )
    assert leaks(moved) == []
    stays = Task(
        "t",
        "refactors",
        "l",
        "i",
        {**files, "copy.py": text},
        (),
        "commands",
        {},
        {"new.py": text},
        metadata=moved.metadata,
    )
    assert leaks(stays) == ["new.py: a copy of the solution is in the workspace"]


def test_tests_of_one_cut_name_that_do_not_agree_have_no_status() -> None:
    assert status_of("t[a", {"t[a b]": PASSED, "t[a c]": FAILED}) is None
