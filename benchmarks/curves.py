"""Learning curves of finished runs as one file for `report.comparisons`.

    python benchmarks/curves.py runs/mla --caption "MLA on the same data" --out benchmarks/results/mla.json

Of each run: the loss of base and SFT and the tasks solved in RL (a moving mean over ten steps), each by CPU seconds of the stage, RL
by steps too; the caption gets the run's bench figures behind it.
"""

from __future__ import annotations

import argparse
import json
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from etude.evaluate.report.collect import metrics
from etude.evaluate.report.comparison_curves import ComparisonCurves, Curve

WINDOW = 10  # steps of 64 rollouts: one step alone is mostly noise
POINTS = 100  # of one curve: more can't be seen

Points = list[tuple[float, float]]


def curves(run: Path, report: dict[str, Any]) -> list[Curve]:
    """What the stages that have been through have logged."""
    found, family = metrics(run), report["recipe"]["model"]["family"]
    name = report["recipe"]["run"]["name"]
    drawn = []
    for stage in ("base", "sft"):
        logged = found.get(stage, {})
        if points := _paired(logged.get("core_s", []), logged.get("mean_loss", [])):
            drawn.append(Curve(name=name, family=family, stage=stage, x="core_s", y="loss", points=_thin(points)))
    rl = found.get("rl", {})
    spent = list(accumulate(value for _, value in rl.get("train_cpu_s", [])))
    solved = [100 * value for _, value in rl.get("pass_rate", [])]
    means = [sum(solved[max(0, i - WINDOW + 1) : i + 1]) / min(WINDOW, i + 1) for i in range(len(solved))]
    axes: dict[Literal["step", "core_s"], list[float]] = {"step": [i + 1.0 for i in range(len(means))], "core_s": spent}
    for x, axis in axes.items():
        if points := list(zip(axis, means, strict=False)):
            drawn.append(Curve(name=name, family=family, stage="rl", x=x, y="solved_percent", points=_thin(points)))
    return drawn


def _paired(xs: list[tuple[int, float]], ys: list[tuple[int, float]]) -> Points:
    at = dict(xs)
    return [(at[step], value) for step, value in ys if step in at]


def _thin(points: Points) -> Points:
    every = -(-len(points) // POINTS)
    return [(round(x, 2), round(y, 4)) for x, y in points[::every]]


def figures(report: dict[str, Any]) -> str:
    """The bench in one sentence; empty if it has not been."""
    bench = report.get("bench", {})
    if "sft" not in bench or "rl" not in bench:
        return ""
    (low, high), split = report["lift"]["ci95"], report["split"]
    return (
        f" {report['recipe']['run']['name']}, {split} tasks: SFT {bench['sft']['avg']:.1f}%, RL {bench['rl']['avg']:.1f}%, "
        f"lift {report['lift']['avg_points']:.1f} [{low:.1f}, {high:.1f}]."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run directories, with their report.json")
    parser.add_argument("--caption", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    reports = {run: json.loads((run / "report.json").read_text()) for run in options.runs}
    comparison = ComparisonCurves(
        schema=1,
        caption=options.caption + "".join(map(figures, reports.values())),
        curves=[curve for run, report in reports.items() for curve in curves(run, report)],
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(comparison.model_dump(by_alias=True)) + "\n")
    print(f"{options.out}: {len(comparison.curves)} curves of {len(reports)} runs")


if __name__ == "__main__":
    main()
