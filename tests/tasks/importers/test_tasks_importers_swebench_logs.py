"""Rows of the SWE-bench family are decided as the `swebench` package decides them: by its recorded decisions, and by asking it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from environments import require_python
from hypothesis import given
from hypothesis import strategies as st
from swebench_logs import PARSERS, drawn
from swebench_record import DECISIONS, asked

from etude.tasks.errors import TaskError
from etude.tasks.importers.swe_grading import (
    END,
    EXIT_CODE,
    F2P,
    P2P,
    READERS,
    START,
    Expected,
    decide,
    machine_trouble,
    reader,
    results,
    status_of,
)
from etude.tasks.test_logs.log import ERROR, FAILED, PASSED, SKIPPED, WORDS, XFAIL, UnreadableLog

CASES = [json.loads(line) for line in Path(DECISIONS).read_bytes().split(b"\n") if line]


def expected_of(case: dict[str, Any]) -> Expected:
    lists = case["FAIL_TO_PASS"], case["PASS_TO_PASS"]
    return Expected(case["instance_id"], case["log_parser"], *lists, case["eval_type"], case["version"])


def ours(case: dict[str, Any]) -> dict[str, Any]:
    """In the shape of the package's answers."""
    try:
        decided = decide(case["log"], expected_of(case))
        statuses, _ = results(case["log"], expected_of(case))
    except UnreadableLog:
        return {"error": ""}
    assert decided.score <= decided.resolved  # never a reward where the package gives none
    verdict = {"statuses": statuses, **decided.to_json()}
    if not decided.applied:
        del verdict["tests_status"]
        trouble = machine_trouble(case["log"].replace("\r\n", "\n").replace("\r", "\n"))
        verdict["infra_failure"] = trouble is not None and trouble[1] == "environment"
        if trouble:
            verdict["infra_failure_reason"] = trouble[0]
    return verdict


def same(case: dict[str, Any], theirs: dict[str, Any]) -> bool:
    if "error" in theirs:
        return "error" in ours(case)
    tests = theirs.get("tests_status")
    wanted = {**theirs} if tests is None else {**theirs, "tests_status": {key: tests[key] for key in (F2P, P2P)}}
    found = ours(case)
    return found == {key: value for key, value in wanted.items() if key in found or key != "infra_failure"}


@pytest.mark.parametrize("parser", PARSERS)
def test_recorded_decisions_of_the_package_are_ours_too(parser: str):
    """Test 53 of docs/sandbox.md: skips, expected failures, cut-off names, repositories that name failures alone, exact in every list."""
    cases = [case for case in CASES if case["log_parser"] == parser]
    assert len(cases) >= 3 and any(case["decided"].get("resolved") for case in cases), parser
    for case in cases:
        assert same(case, case["decided"]), (case, ours(case))


@pytest.mark.nightly
def test_the_package_itself_decides_thousands_of_drawn_logs_as_we_do():
    cases = [drawn(parser, seed) for parser in PARSERS for seed in range(1000, 1200)]
    _, decided = asked(require_python("swebench"), cases)
    assert [case for case, word in zip(cases, decided, strict=True) if not same(case, word)] == []


def logged(*lines: str, code: int | None = None) -> str:
    return "\n".join(
        [f"+ : '{START}'", *lines, f"+ : '{END}'", *([f"{EXIT_CODE}: {code}"] if code is not None else [])]
    )


ROW = Expected("o__r-1", "parse_log_pytest", ("a.py::one",), ("a.py::two",))


@pytest.mark.parametrize(
    "lines, code, score, reason",
    [
        (("PASSED a.py::one", "PASSED a.py::two"), 0, 1, ""),
        (("XFAIL a.py::one", "SKIPPED a.py::two"), 0, 1, ""),
        (("SKIPPED a.py::one", "PASSED a.py::two"), 0, 0, "not done: failed a.py::one"),
        (("PASSED a.py::one",), 0, 0, "broke something else: failed a.py::two"),
        (("PASSED a.py::one", "ERROR a.py::two"), 1, 0, "broke something else"),
        (("PASSED a.py::one", "PASSED a.py::two"), 1, 0, "ended with status 1, yet the log tells of no failure"),
        (("PASSED a.py::one", "PASSED a.py::two", "FAILED a.py::three"), 1, 1, ""),
        (("SKIPPED [1] a.py:3: why",), 0, 0, "nothing in it shows that a suite ran"),
        (("PASSED: a.py::one", "PASSED a.py::two"), 0, 1, "not counted as passed"),
    ],
)
def test_a_score_needs_every_named_test_shown(lines: tuple[str, ...], code: int, score: int, reason: str):
    if (
        lines[0] == "PASSED: a.py::one"
    ):  # the package drops such a test from both lists, and resolves the row without it
        lines = ("PASSED:x a.py::one", *lines[1:])
        assert decide(logged(*lines, code=code), ROW).resolved and not decide(logged(*lines, code=code), ROW).score
        score = 0
    decided = decide(logged(*lines, code=code), ROW)
    assert decided.score == score and reason in decided.reason


def test_a_row_that_names_no_test_shows_nothing_whatever_the_package_says_of_it():
    decided = decide(logged("PASSED a.py::x"), Expected("o__r-1", "pytest", (), ()))
    assert decided.resolved and decided.score == 0 and "names no test" in decided.reason


@pytest.mark.parametrize("mark", [START, END])
def test_without_both_marks_nothing_is_believed(mark: str):
    decided = decide(logged("PASSED a.py::one", "PASSED a.py::two").replace(mark, ""), ROW)
    assert not decided.applied and not decided.score and "marks" in decided.reason


@pytest.mark.parametrize(
    "shown, score",
    [("Executed 3 of 3", 1), ("Executed 0 of 0", 0), ("", 0), ("1) one", 0), ("12 specs, 0 failures", 1)],
)
def test_a_log_that_names_failures_alone_must_show_that_a_suite_ran(shown: str, score: int):
    row = Expected("o__r-1", "parse_log_marked", ("one",), (), "fail_only")
    assert decide(logged(shown), row).score == score


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4))
def test_a_name_cut_off_within_a_parameter_means_all_that_begin_so_if_they_agree(words: list[str]):
    statuses = {f"t.py::x[log(photon{number}]": word for number, word in enumerate(words)}
    alike = len({word in (PASSED, XFAIL) for word in words}) == 1
    assert status_of("t.py::x[log(photon", statuses) == (words[0] if alike else None)
    assert status_of("t.py::x", statuses) is None and status_of("t.py::x[log]", statuses) is None


def test_an_unknown_reader_and_a_log_that_its_reader_cant_take_are_named():
    with pytest.raises(TaskError, match="no reader of logs is called 'junit'; there are parse_log_pytest"):
        reader("junit")
    with pytest.raises(UnreadableLog, match="runner of row 'o__r-1' isn't known"):
        decide(logged("✓ x"), Expected("o__r-1", "parse_log_immutable_js", ("x",), ()))
    with pytest.raises(UnreadableLog, match="no XML"):
        decide(logged("<doctest>"), Expected("o__r-1", "parse_log_doctest", ("x",), ()))
    with pytest.raises(UnreadableLog, match="5000 digits"):
        decide(logged("PASSED x") + f"\n{EXIT_CODE}: {'1' * 5000}", ROW)
    assert len(READERS) == 57 and {PASSED, FAILED, SKIPPED, ERROR, XFAIL} == set(WORDS)


def test_trouble_of_the_machine_is_reported_next_to_the_decision_and_never_changes_it():
    assert machine_trouble("x\nKilled\n") == ("out_of_memory", "environment")
    assert machine_trouble("ModuleNotFoundError: a") == ("missing_module", "ambiguous")
    assert machine_trouble("PASSED a") is None
