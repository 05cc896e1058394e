"""A suite's bench run has its page: every policy and effort with intervals, fronts, comparisons; what is missing is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.report.page import suite_page
from etude.report.settings import ReportSettings
from etude.report.write import write_report

SETTINGS = ReportSettings()  # pyright: ignore[reportCallIssue]
EVIL = "<script>alert(1)</script>"


def policy(name: str, effort: str, average: float, tokens: float) -> dict:
    split = {"avg": average, "ci95": [average - 5, average + 5], "tasks": 4, "best_of_2": average}
    return {
        "name": name, "effort": effort, "key": f"{name}@{effort}", "kind": "endpoint", "model": EVIL, "passes": 4, "tasks": 8,
        "avg": average, "ci95": [average - 4, average + 4], "avg_equal": average, "ci95_equal": [average - 6, average + 6],
        "best_of": {"1": average, "2": average + 3, "4": average + 5}, "pass_at": {"1": average, "2": average, "4": average},
        "axes": {"tokens": {"value": tokens, "ci95": [tokens * 0.9, tokens * 1.1]}}, "turns": 4.0, "tool_calls": 5.0,
        "by_category": {"debugging": split, EVIL: split}, "by_style": {"terse": split},
    }  # fmt: skip


def report() -> dict:
    rows = [policy("a", "low", 40.0, 900.0), policy("a", "high", 60.0, 4000.0), policy("b", "low", 50.0, 800.0)]
    compared = {"a": "a@low", "b": "b@low", "points": 10.0, "ci95": [2.0, 18.0], "p": 0.01, "p_holm": 0.03, "tasks": 8}
    return {
        "schema": 1, "kind": "bench", "suite": {"name": "exercises", "version": "1"}, "tasks": 8, "seed": 7,
        "strict": {"network": "none"}, "policies": rows, "unfinished": [],
        "comparisons": [compared | {"tasks_changed": 5, "detectable_points": 9.5}],
        "items": {"saturated": ["t/1"], "impossible": [], "discrimination": {"t/1": 0.0, "t/2": 0.8}},
    }  # fmt: skip


def test_every_policy_and_effort_stands_with_its_interval_and_on_the_plot() -> None:
    page = suite_page(report(), title="mine")
    for key in ("a@low", "a@high", "b@low"):
        assert page.count(key) >= 4
    assert "[36.0, 44.0]" in page and 'class="pareto' in page and "exercises@1" in page
    assert "+10.0" in page and "9.5" in page and "1 saturated" in page


def test_no_text_of_a_report_becomes_markup() -> None:
    assert EVIL not in suite_page(report(), title=EVIL)


def test_a_kind_that_all_tasks_share_is_no_table() -> None:
    page = suite_page(report(), title="mine")
    assert "<h3>Category</h3>" in page and "Style of the request" not in page


def test_what_is_unfinished_is_said_with_what_to_do() -> None:
    missing = {"key": "a@low", "whole_passes": 1, "planned_passes": 4, "missing": 20}
    page = suite_page(report() | {"unfinished": [missing]}, title="mine")
    assert "a@low is unfinished: 1 of 4 passes are whole, 20 attempts are missing" in page


@pytest.mark.parametrize("absent", ["comparisons", "items", "strict", "unfinished"])
def test_what_a_report_does_not_have_is_left_out(absent: str) -> None:
    assert "a@high" in suite_page({k: v for k, v in report().items() if k != absent}, title="mine")


def test_the_page_is_written_and_the_bench_s_own_report_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report()))
    before = path.read_bytes()
    assert write_report(tmp_path, SETTINGS)["kind"] == "bench"
    assert path.read_bytes() == before and "a@high" in (tmp_path / "report.html").read_text()
