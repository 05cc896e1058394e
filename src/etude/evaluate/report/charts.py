"""Which charts a report shows: each function takes the report (or the curves) and gives one titled chart or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from etude.evaluate.report.comparison_curves import ComparisonCurves
from etude.evaluate.report.plot import Bar, Mark, PlotLine, bar_chart, line_chart

Curves = dict[str, dict[str, list[tuple[int, float]]]]
POLICY_NAMES = {"base": "base", "sft": "SFT", "rl": "RL", "expert": "expert", "nop": "nop", "cheat": "cheat"}
TRAINED = {"base": "base", "sft": "SFT"}  # stages that learn from text


def chart(title: str, svg: str, note: str = "") -> str:
    """A titled box around a drawing; an empty drawing gives nothing."""
    if not svg:
        return ""
    words = f'<p class="muted">{escape(note)}</p>' if note else ""
    named = svg.replace('role="img"', f'role="img" aria-label="{escape(title)}"', 1)
    return f'<div class="chart"><h3>{escape(title)}</h3>{named}{words}</div>'


def policies(report: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(key, shown name, entry) of every policy in the bench, controls flattened, in the order a reader wants them.

    A bench of an endpoint has one policy, under the name of its model.
    """
    bench = report.get("bench", {})
    names = POLICY_NAMES | {key: key for key in bench if key not in (*POLICY_NAMES, "controls")}
    rows = [(key, name, bench[key]) for key, name in names.items() if key in bench]
    place = sum(key in bench for key in ("base", "sft", "rl"))
    rows[place:place] = [(k, f"control: {control(k)}", entry) for k, entry in bench.get("controls", {}).items()]
    return rows


def control(key: str) -> str:
    """`rewarded_sft` as a reader wants it."""
    return key.replace("_", " ").replace("sft", "SFT")


def averages(report: dict[str, Any], asked: str) -> str:
    """A bar for each policy; where only one was asked, for each level."""
    found = policies(report)
    bars = [Bar(name.removeprefix("control: "), e["avg"], *e["ci95"]) for _, name, e in found]
    note = "Average of all passes, levels weighed as the exercises mix them. Whiskers: 95%, by task."
    if len(found) == 1:
        bars = [Bar(level, e["avg"], *e["ci95"]) for level, e in found[0][2]["by_level"].items()]
        note = "Average of all passes. Whiskers: 95%, by task."
    return chart(f"{asked.capitalize()} tasks solved", bar_chart(bars, y_title="%"), note)


def best_of(report: dict[str, Any]) -> str:
    lines = [
        PlotLine(name, [int(k) for k in entry["best_of"]], list(entry["best_of"].values()), hue=place)  # as its bar
        for place, (_, name, entry) in enumerate(policies(report))
        if len(entry["best_of"]) >= 3
    ]
    drawing = line_chart(lines, x_title="k (log scale)", y_title="%", log_x=True, y_zero=True)
    return chart("Best of k", drawing, "Expected best of k attempts at a task, unbiased.")


def losses(curves: Curves, comparisons: Sequence[ComparisonCurves] = ()) -> str:
    """Loss by CPU seconds where the run knows them, since a step of one family is not worth a step of another."""
    own = [PlotLine(name, *_by_core_s(curves[stage])) for stage, name in TRAINED.items() if stage in curves]
    lines = [line for line in own if line.xs] + _dashed(comparisons, ("base", "sft"), "core_s", "loss")
    drawing = line_chart(
        lines, x_title="CPU seconds of the stage (log scale)", y_title="loss (log scale)", log_x=True, log_y=True
    )
    return chart("Learning from text and demonstrations", drawing)


def losses_by_step(curves: Curves, comparisons: Sequence[ComparisonCurves] = ()) -> str:
    """By step: where CPU seconds were not recorded, or where another run's curve is by step."""
    others = _dashed(comparisons, ("base", "sft"), "step", "loss")
    own = [
        PlotLine(name, [step + 1 for step, _ in _loss(curves[stage])], [loss for _, loss in _loss(curves[stage])])
        for stage, name in TRAINED.items()
        if "loss" in curves.get(stage, {}) and (others or not _by_core_s(curves[stage])[0])
    ]
    drawing = line_chart(
        own + others, x_title="optimizer step (log scale)", y_title="loss (log scale)", log_x=True, log_y=True
    )
    return chart("Loss by step", drawing)


def alarms(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What the watch over RL's figures said, in order: `step`, and `text` with its cause and from where to where a figure went."""
    return report.get("rl", {}).get("alarms", [])


def rewards(report: dict[str, Any], comparisons: Sequence[ComparisonCurves] = ()) -> str:
    curve = report.get("rl", {}).get("curve", [])
    raw = [100 * point["pass_rate"] for point in curve]
    steps = [point["step"] for point in curve]
    lines = [PlotLine("each batch", steps, raw), PlotLine("mean of 5", steps, _smooth(raw, 5))]
    lines += _dashed(comparisons, ("rl",), "step", "solved_percent")
    marks = [Mark(alarm["step"], str(number)) for number, alarm in enumerate(alarms(report), 1)]
    drawing = line_chart(lines, x_title="RL step", y_title="training tasks solved, %", y_zero=True, marks=marks)
    note = "Every task is seen once, so this is performance on new tasks." if curve else ""
    note += " Uprights: alarms of drift, listed below." if marks else ""
    return chart("Learning from reward", drawing, note)


def solved_by_cost(comparisons: Sequence[ComparisonCurves]) -> str:
    """Tasks solved by CPU seconds (and, of SFT, by step): other runs' curves alone, this run measures its end only."""
    drawn = []
    for stages, x, title in (
        (("rl",), "core_s", "Other runs: solved in RL"),
        (("base", "sft"), "core_s", "Other runs: solved in SFT"),
        (("base", "sft"), "step", "Other runs: solved in SFT, by step"),
    ):
        lines = _dashed(comparisons, stages, x, "solved_percent")
        x_title = "CPU seconds of the stage (log scale)" if x == "core_s" else "optimizer step (log scale)"
        drawn.append(
            chart(title, line_chart(lines, x_title=x_title, y_title="tasks solved, %", log_x=True, y_zero=True))
        )
    return "".join(drawn)


def from_curve(report: dict[str, Any], keys: dict[str, str], title: str, y_title: str, *, log_y: bool = False) -> str:
    """Any per-step values of the RL curve, `keys` maps the curve's field to the name shown."""
    curve = report.get("rl", {}).get("curve", [])
    lines = [
        PlotLine(name, [p["step"] for p in curve if key in p], [p[key] for p in curve if key in p])
        for key, name in keys.items()
    ]
    return chart(title, line_chart(lines, x_title="RL step", y_title=y_title, log_y=log_y, y_zero=not log_y))


def tokens_by_version(report: dict[str, Any]) -> str:
    counts = report.get("rl", {}).get("counts", {}).get("tokens_by_version", {})
    line = PlotLine("tokens", [int(version) for version in counts], list(counts.values()))
    drawing = line_chart([line], x_title="policy version", y_title="tokens sampled", y_zero=True)
    return chart("Tokens by policy version", drawing)


def _dashed(comparisons: Sequence[ComparisonCurves], stages: Sequence[str], x: str, y: str) -> list[PlotLine]:
    return [
        PlotLine(
            f"{curve.name} ({curve.family}, {curve.stage})", *map(list, zip(*curve.points, strict=True)), dashed=True
        )
        for found in comparisons
        for curve in found.curves
        if curve.stage in stages and curve.x == x and curve.y == y
    ]


def _by_core_s(stage: dict[str, list[tuple[int, float]]]) -> tuple[list[float], list[float]]:
    """(CPU seconds, loss) of the steps that recorded both."""
    seconds = dict(stage.get("core_s", []))
    both = [(seconds[step], loss) for step, loss in _loss(stage) if step in seconds]
    return [x for x, _ in both], [y for _, y in both]


def _loss(stage: dict[str, list[tuple[int, float]]]) -> list[tuple[int, float]]:
    """The mean since the last record where there is one: a single batch scatters."""
    return stage.get("mean_loss") or stage.get("loss", [])


def _smooth(values: list[float], width: int) -> list[float]:
    """Trailing mean of up to `width` values."""
    windows = [values[max(0, i - width + 1) : i + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]
