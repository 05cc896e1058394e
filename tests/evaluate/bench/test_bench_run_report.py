"""The report of a bench run, from its files alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.prices import Price
from etude.evaluate.bench.run_report import FILES, LINES, band, write_report
from etude.evaluate.bench.runs.conditions import begin
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.runs.table import NoBenchRun, price_row

TASKS = ["a", "b", "c", "d"]
PRICE = Price("m", date(2026, 1, 1), 1.0, 0.1, 2.0, 10.0)
SHARED: dict[str, Any] = {
    "suite": {"label": "s@1", "name": "s", "version": "1", "digest": "d"}, "tasks": TASKS, "weights": None, "seed": 7,
    "strict": {"network": "none"}, "report": {"resamples": 400},
}  # fmt: skip


def facts(name: str, kind: str = "endpoint", passes: int = 2, **more: Any) -> dict[str, Any]:
    price = price_row(PRICE) if kind == "endpoint" else None
    return {"name": name, "effort": "low", "kind": kind, "model": "m", "harness": "h", "passes": passes, "price": price,
            "priced": "2026-02-02" if price else None, **more}  # fmt: skip


def outcome(task: str, number: int, score: float, **more: Any) -> Outcome:
    known = Outcome(task, number, "debugging", "one", score, 50, 3, 4, 2.0, effort="low", input_tokens=1000, cached_tokens=400,
                    cache_write_tokens=100, output_tokens=200, files=1 if task in "ab" else 3, lines=5 if task == "a" else 60)  # fmt: skip
    return replace(known, **more)


def fill(folder: RunFolder, key: str, rows: dict[str, list[float]], **more: Any) -> None:
    file = OutcomeFile(folder.outcomes(key))
    for task, row in rows.items():
        for number, score in enumerate(row):
            file.add(outcome(task, number, score, **more))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def entry(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [row for row in report["policies"] if row["name"] == name]
    return found


def two(folder: RunFolder) -> dict[str, Any]:
    begin(folder, SHARED, {"nop@low": facts("nop", "control"), "p@low": facts("p"), "q@low": facts("q")})
    fill(folder, "nop@low", {t: [0.0, 0.0] for t in TASKS}, input_tokens=None, output_tokens=None)
    fill(folder, "p@low", {"a": [1, 0], "b": [1, 1], "c": [0, 0], "d": [0.5, 1]})
    fill(folder, "q@low", {"a": [1, 1], "b": [1, 1], "c": [0, 0], "d": [1, 1]}, output_tokens=400)
    return write_report(folder)


def test_figures_are_those_of_the_outcomes(folder: RunFolder) -> None:
    report = two(folder)
    p = entry(report, "p")
    assert p["avg"] == 56.25 and p["best_of"] == {"1": 56.25, "2": 75.0} and p["pass_at"] == {"1": 50.0, "2": 75.0}
    assert p["pass_at_ci95"]["2"][0] < 75 < p["pass_at_ci95"]["2"][1] and set(p["best_of_ci95"]) == {"1", "2"}
    assert p["best_of_ci95"]["1"] == p["ci95"]
    dollars = (500 * 1.0 + 400 * 0.1 + 100 * 2.0 + 200 * 10.0) / 1e6
    assert p["axes"]["dollars"]["value"] == p["axes"]["dollars"]["median"] == pytest.approx(dollars)
    assert p["axes"]["tokens"] == {"value": 200.0, "ci95": [200.0, 200.0], "median": 200.0, "source": "endpoint"}
    assert p["axes"]["seconds"]["value"] == 2.0 and "core_seconds" not in p["axes"]
    assert p["usage"]["input_tokens"] == 8000 and p["usage"]["unreported"] == 0
    assert p["price"]["output"] == 10.0 and p["priced"] == "2026-02-02"
    assert set(p["by_files"]) == {"1", "2-4"} and set(p["by_lines"]) == {"1-9", "50-199"} and p["by_style"] == {}
    assert p["by_files"]["1"]["avg"] == 75.0 and p["by_category"]["debugging"]["tasks"] == 4


def test_controls_stand_in_the_table_but_not_among_those_compared(folder: RunFolder) -> None:
    report = two(folder)
    nop = entry(report, "nop")
    assert nop["avg"] == 0.0 and set(nop["axes"]) == {"tokens"} and nop["axes"]["tokens"]["source"] == "harness"
    assert [(row["a"], row["b"], row["points"]) for row in report["comparisons"]] == [("p@low", "q@low", 18.75)]
    assert report["items"]["saturated"] == ["b"] and report["items"]["impossible"] == ["c"]
    points = {point["key"]: point for point in report["pareto"]["tokens"]}
    assert set(points) == {"p@low", "q@low"} and points["p@low"]["on_front"] and points["q@low"]["on_front"]


def test_seconds_of_our_own_engine_are_core_seconds_too(folder: RunFolder) -> None:
    begin(folder, SHARED, {"p@low": facts("p", "checkpoint")})
    fill(folder, "p@low", {t: [1.0, 1.0] for t in TASKS}, core_seconds=1.5)
    assert entry(write_report(folder), "p")["axes"]["core_seconds"]["value"] == 1.5


def test_one_turn_without_usage_leaves_dollars_out_rather_than_too_low(folder: RunFolder) -> None:
    begin(folder, SHARED, {"p@low": facts("p", passes=1)})
    fill(folder, "p@low", {t: [1.0] for t in TASKS[:3]})
    fill(folder, "p@low", {"d": [1.0]}, input_tokens=None, output_tokens=None)
    p = entry(write_report(folder), "p")
    assert "dollars" not in p["axes"] and p["usage"]["input_tokens"] is None and p["usage"]["unreported"] == 1
    assert p["axes"]["tokens"]["source"] == "harness"


def test_only_whole_passes_are_averaged_and_what_is_missing_is_reported(folder: RunFolder) -> None:
    begin(folder, SHARED, {"p@low": facts("p", passes=3), "q@low": facts("q")})
    fill(folder, "p@low", {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [1.0], "d": [1.0]})
    report = write_report(folder)
    assert entry(report, "p")["avg"] == 100.0 and entry(report, "p")["passes"] == 1
    assert [row["name"] for row in report["policies"]] == ["p"]
    assert report["unfinished"] == [
        {"key": "p@low", "whole_passes": 1, "planned_passes": 3, "missing": 6},
        {"key": "q@low", "whole_passes": 0, "planned_passes": 2, "missing": 8},
    ]


def test_the_same_attempts_give_the_same_bytes_in_whatever_order_they_ended(tmp_path: Path) -> None:
    found = []
    for order in (TASKS, TASKS[::-1]):
        folder = RunFolder(tmp_path / "".join(order))
        begin(folder, SHARED, {"expert@low": facts("expert", "control"), "nop@low": facts("nop", "control")})
        for place, task in enumerate(order):  # times differ, as they do
            fill(folder, "expert@low", {task: [1.0, 1.0]}, seconds=0.1 * place)
            fill(folder, "nop@low", {task: [0.0, 0.0]}, seconds=0.3 * place)
        write_report(folder)
        found.append(folder.report.read_bytes())
    assert found[0] == found[1]


def test_a_folder_without_a_bench_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoBenchRun, match="no conditions.json"):
        write_report(RunFolder(tmp_path))


@given(st.integers(-5, 3000))
def test_every_size_lies_in_its_band(value: int) -> None:
    for bounds in (LINES, FILES):
        name = band(value, bounds)
        if not name:
            assert value < bounds[0]
            continue
        low, _, high = name.rstrip("+").partition("-")
        assert int(low) <= value and (name.endswith("+") or value <= int(high or low))


def test_a_level_of_one_task_is_reported_since_its_interval_is_too_narrow(folder: RunFolder) -> None:
    begin(folder, SHARED, {"p@low": facts("p", passes=1)})
    fill(folder, "p@low", {t: [1.0] for t in "abc"})
    fill(folder, "p@low", {"d": [0.0]}, level="two")
    assert write_report(folder)["thin_levels"] == ["two"]
