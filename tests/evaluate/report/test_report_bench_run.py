"""The page of a bench run, from its report.json: what it shows, and that no name in it becomes markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from etude.evaluate.report.write import write_page


def interval(value: float) -> dict[str, Any]:
    return {"value": value, "ci95": [value / 2, value * 2], "median": value}


def entry(name: str, effort: str, avg: float, cost: float, kind: str = "endpoint") -> dict[str, Any]:
    row = {"avg": avg, "ci95": [avg - 5, avg + 5], "tasks": 4, "best_of_2": avg}
    axes = {"tokens": interval(1000 * cost)} | ({"dollars": interval(cost)} if kind == "endpoint" else {})
    return {
        "name": name, "effort": effort, "key": f"{name}@{effort}", "kind": kind, "model": name, "harness": "h" * 16, "tasks": 8,
        "passes": 2, "avg": avg, "ci95": [avg - 5, avg + 5], "best_of": {"1": avg, "2": avg + 3}, "pass_at": {"1": avg, "2": avg},
        "axes": axes, "turns": 4.0, "by_category": {"debugging": row, "features": row}, "by_level": {"one": row}, "by_style": {},
        "by_lines": {}, "by_files": {}, "by_holdout": {},
    }  # fmt: skip


@pytest.fixture
def report() -> dict[str, Any]:
    field = [entry(n, e, 30.0 + 10 * i + j, 0.1 * (i + 1) * (j + 1)) for i, n in enumerate(["strong", "weak<b>"])
             for j, e in enumerate(["low", "high"])]  # fmt: skip
    points = [
        {"key": e["key"], "score": e["avg"], "score_ci95": e["ci95"], "cost": e["axes"]["dollars"]["value"],
         "cost_ci95": e["axes"]["dollars"]["ci95"], "on_front": True, "share": 0.9}
        for e in field
    ]  # fmt: skip
    pair = {"a": "strong@low", "b": "weak<b>@low", "points": 10.0, "ci95": [1.0, 19.0], "p": 0.01, "p_holm": 0.03, "tasks": 8,
            "tasks_changed": 3, "detectable_points": None}  # fmt: skip
    return {
        "schema": 1, "kind": "bench", "suite": {"label": "mine@3", "name": "mine", "version": "3", "digest": "d"}, "tasks": 8,
        "seed": 7, "resamples": 2000, "strict": {"network": "none"}, "policies": [entry("nop", "medium", 0.0, 1, "control"), *field],
        "unfinished": [], "thin_levels": [], "pareto": {"dollars": points, "tokens": []}, "comparisons": [pair],
        "items": {"saturated": ["t/1"], "impossible": [], "discrimination": {"t/2": -0.4, "t/3": 0.5}},
    }  # fmt: skip


Draw = Callable[[dict[str, Any]], str]


@pytest.fixture
def bench_page(tmp_path: Path) -> Draw:
    """The page that is written of a report."""

    def drawn(report: dict[str, Any]) -> str:
        (tmp_path / "report.json").write_text(json.dumps(report))
        return write_page(tmp_path).read_text()

    return drawn


class Reader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_rows_costs_pairs_traits_and_items(report: dict[str, Any], bench_page: Draw) -> None:
    page = Reader(bench_page(report))
    for words in ("mine@3: 8 tasks", "Best of 2", "nop control", "Dollars", "+10.0", "debugging", "solved by all in every pass: t/1",
                  "-0.40"):  # fmt: skip
        assert words in page.text, words
    assert page.tags.count("svg") == 1  # an axis without a competing policy has no plot
    assert "t/3" not in page.text  # it orders policies as it should


def test_no_name_becomes_markup_and_nothing_is_fetched(report: dict[str, Any], bench_page: Draw) -> None:
    page = bench_page(report)
    assert "weak<b>" not in page and "weak&lt;b&gt;" in page
    assert "default-src 'none'" in page and not {"img", "iframe"} & set(Reader(page).tags)


def test_what_is_missing_is_reported_first(report: dict[str, Any], bench_page: Draw) -> None:
    report["unfinished"] = [{"key": "strong@low", "whole_passes": 1, "planned_passes": 4, "missing": 20}]
    report["thin_levels"] = ["relapse"]
    text = Reader(bench_page(report)).text
    assert "strong@low: 20 attempts of 4 planned passes are missing" in text and "of relapse there is one task" in text


def test_a_run_of_which_no_pass_is_whole_has_a_page_all_the_same(report: dict[str, Any], bench_page: Draw) -> None:
    bare = {k: v for k, v in report.items() if k not in ("pareto", "comparisons", "items")}
    assert "0 policies" in Reader(bench_page({**bare, "policies": []})).text


def test_judged_and_audited_parts_are_shown_where_they_are(report: dict[str, Any], bench_page: Draw) -> None:
    report["judged"] = {"judge": None, "why": "left out: no judge was asked"}
    assert "left out: no judge was asked" in Reader(bench_page(report)).text
    agreement = {"judge": "j", "criterion": "claims", "kappa": 0.71, "ci95": [0.5, 0.9], "items": 40}
    report["judged"] = {
        "judge": "j",
        "policies": {"strong@low": {"r/claims": {"mean": 66.7}}},
        "agreement": [agreement],
    }
    audit = {"read": 4, "flagged": 1, "avg": 30.0, "avg_without_flagged": 20.0, "avg_flagged_as_failed": 15.0}
    flagged = [{"key": "strong@low", "task_id": "t/1", "flags": [{"wire": "tests edited"}]}]
    report["audit"] = {"policies": {"strong@low": audit}, "flagged": flagged}
    text = Reader(bench_page(report)).text
    assert "66.7" in text and "0.71" in text and "tests edited" in text and "Without flagged" in text


def test_the_page_is_written_next_to_its_report(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert write_page(tmp_path) == tmp_path / "report.html"
    assert {path.name for path in tmp_path.iterdir()} <= {"report.html", "report.json", "board.index"}
