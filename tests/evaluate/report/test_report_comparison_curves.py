"""Curves of other runs are drawn dashed, said to be of others, and kept with the run."""

import json
from pathlib import Path

import pytest

from etude.evaluate.report.charts import losses, losses_by_step, rewards
from etude.evaluate.report.comparison_curves import STORED, ComparisonCurvesError, parse, read_comparison_curves
from etude.evaluate.report.settings import ReportSettings
from etude.evaluate.report.write import write_page, write_report

FILE = {
    "schema": 1,
    "caption": "MLA learns to copy <later>.",
    "curves": [
        {"name": "MLA, seed 0", "family": "deepseek_v3", "stage": "sft", "x": "core_s", "y": "loss",
         "points": [[3.6, 5.4], [30.0, 2.0], [300.0, 0.5]]},
        {"name": "MLA, seed 0", "family": "deepseek_v3", "stage": "rl", "x": "step", "y": "solved_percent",
         "points": [[0, 10.0], [1, 12.0]]},
        {"name": "by step", "family": "deepseek_v3", "stage": "sft", "x": "step", "y": "loss",
         "points": [[1, 5.0], [100, 1.0]]},
    ],
}  # fmt: skip
CURVES = {
    "sft": {"loss": [(10, 3.0), (20, 1.0)], "core_s": [(10, 4.0), (20, 8.0)], "mean_loss": [(10, 4.0), (20, 2.0)]}
}
REPORT = {"rl": {"curve": [{"step": 0, "pass_rate": 0.2}, {"step": 1, "pass_rate": 0.4}]}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.toml").write_text('[run]\nname = "laptop"\n')
    (folder / "sft").mkdir()
    (folder / "sft" / "summary.json").write_text('{"steps": 20}')
    return folder


def test_each_curve_goes_to_the_chart_of_its_axes():
    curves = [parse(json.dumps(FILE), "mla.json")]
    by_cost, by_step, reward = losses(CURVES, curves), losses_by_step(CURVES, curves), rewards(REPORT, curves)
    for drawn in (by_cost, by_step, reward):
        assert drawn.count("stroke-dasharray") == 1 and drawn.count("<polyline") >= 2
    assert "(deepseek_v3, sft)" in by_cost and "(deepseek_v3, rl)" in reward and "by step" in by_step


def test_without_other_curves_nothing_is_dashed_and_loss_is_drawn_once():
    assert "dash" not in losses(CURVES) + rewards(REPORT)
    assert losses(CURVES) and losses_by_step(CURVES) == ""
    assert losses_by_step({"sft": {"loss": [(10, 3.0), (20, 1.0)]}})  # CPU seconds unknown


def test_the_report_keeps_what_it_drew_and_can_be_rebuilt_without_the_file(run: Path, tmp_path: Path):
    source = tmp_path / "mla.json"
    source.write_text(json.dumps(FILE))
    settings = ReportSettings(comparisons=[str(source), "nowhere.json"])  # pyright: ignore[reportCallIssue]
    first = write_report(run, settings)
    html = (run / "report.html").read_text()
    assert "Dashed: MLA learns to copy &lt;later&gt;." in html and "Not found, so not drawn: nowhere.json" in html
    assert first["comparisons"] == {"files": [str(source), "nowhere.json"], "missing": ["nowhere.json"]}
    source.unlink()
    assert write_report(run, settings) == first and (run / "report.html").read_text() == html
    assert (run / STORED).is_file()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "schema"),
        ({"curves": [{**FILE["curves"][0], "stage": "mtp"}]}, r"curves\.0\.stage"),
        ({"curves": [{**FILE["curves"][0], "points": []}]}, r"curves\.0\.points"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_file_in_another_form_is_refused_with_the_place(change: dict, words: str):
    with pytest.raises(ComparisonCurvesError, match=rf"mla\.json: {words}.*comparison_curves\.py"):
        parse(json.dumps({**FILE, **change}), "mla.json")


def test_a_bench_of_an_endpoint_draws_none(run: Path, tmp_path: Path):
    (run / "sft" / "summary.json").unlink()
    (tmp_path / "mla.json").write_text(json.dumps(FILE))
    write_report(run, ReportSettings(comparisons=[str(tmp_path / "mla.json")]))  # pyright: ignore[reportCallIssue]
    assert "Learning curves" not in (run / "report.html").read_text() and not (run / STORED).exists()


def test_no_file_named_leaves_no_trace(run: Path):
    assert read_comparison_curves(run, []) == ([], []) and not (run / STORED).exists()
    assert "comparisons" not in write_report(run, ReportSettings())  # pyright: ignore[reportCallIssue]


def test_a_run_of_an_earlier_release_keeps_its_curves_under_the_former_name(run: Path, tmp_path: Path):
    (run / "beside.json").write_text(json.dumps({"gone.json": json.dumps(FILE)}))
    curves, missing = read_comparison_curves(run, ["gone.json"])
    assert [found.caption for found in curves] == [FILE["caption"]] and missing == []
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text() + '\n[report]\nbeside = ["gone.json"]\n')
    write_page(run)
    assert "Dashed: MLA learns to copy &lt;later&gt;." in (run / "report.html").read_text()
