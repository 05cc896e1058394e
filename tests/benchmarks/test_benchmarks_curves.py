"""`benchmarks/curves.py`: curves of a finished run for `report.comparisons`, as its events say."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from etude.core.events.log import EventLog
from etude.evaluate.report.comparison_curves import ComparisonCurves

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "curves.py"


def finished_run(folder: Path) -> Path:
    """A run of 12 steps a stage, with a bench."""
    folder.mkdir()
    log = EventLog(folder / "events.jsonl")
    for step in range(1, 13):
        log.metric("base", step, core_s=2.0 * step, mean_loss=5.0 - step / 10)
        log.metric("rl", step, train_cpu_s=3.0, pass_rate=step / 20)
    lift = {"avg_points": 10.5, "ci95": [4.0, 17.0]}
    recipe = {"run": {"name": "mine"}, "model": {"family": "qwen3_moe"}}
    bench = {"sft": {"avg": 20.0}, "rl": {"avg": 30.5}}
    (folder / "report.json").write_text(
        json.dumps({"recipe": recipe, "bench": bench, "lift": lift, "split": "heldout"})
    )
    return folder


def test_curves_are_the_run_s_own_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = finished_run(tmp_path / "run"), tmp_path / "comparisons.json"
    monkeypatch.setattr(sys, "argv", ["curves.py", str(run), "--caption", "Others.", "--out", str(out)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    found = ComparisonCurves.model_validate(json.loads(out.read_text()))
    assert found.caption == "Others. mine, heldout tasks: SFT 20.0%, RL 30.5%, lift 10.5 [4.0, 17.0]."
    curves = {(curve.stage, curve.x): curve for curve in found.curves}
    assert set(curves) == {("base", "core_s"), ("rl", "step"), ("rl", "core_s")}
    assert curves["base", "core_s"].points[0] == (2.0, 4.9) and curves["base", "core_s"].y == "loss"
    assert curves["rl", "step"].points[0] == (1.0, 5.0)
    assert curves["rl", "step"].points[-1] == (12.0, pytest.approx(100 * sum(range(3, 13)) / 10 / 20)), (
        "mean over ten steps"
    )
    assert curves["rl", "core_s"].points[-1][0] == 36.0
