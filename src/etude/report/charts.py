"""Which charts a report shows: each function takes the report (or the curves) and gives one titled chart or nothing."""

from __future__ import annotations

from html import escape
from typing import Any

from etude.report.plot import Bar, Line, bar_chart, line_chart

Curves = dict[str, dict[str, list[tuple[int, float]]]]
POLICY_NAMES = {"base": "base", "sft": "SFT", "rl": "RL", "expert": "expert", "nop": "nop", "cheat": "cheat"}


def chart(title: str, svg: str, note: str = "") -> str:
    """A titled box around a drawing; an empty drawing gives nothing."""
    if not svg:
        return ""
    words = f'<p class="muted">{escape(note)}</p>' if note else ""
    return f'<div class="chart"><h3>{escape(title)}</h3>{svg}{words}</div>'


def policies(report: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(key, shown name, entry) of every policy in the bench, controls flattened, in the order a reader wants them."""
    bench = report.get("bench", {})
    rows = [(key, name, bench[key]) for key, name in POLICY_NAMES.items() if key in bench]
    rows[3:3] = [(key, f"control: {key.replace('_', ' ')}", entry) for key, entry in bench.get("controls", {}).items()]
    return rows


def averages(report: dict[str, Any]) -> str:
    bars = [Bar(name.removeprefix("control: "), e["avg"], *e["ci95"]) for _, name, e in policies(report)]
    return chart("Held-out tasks solved, average of all passes", bar_chart(bars, y_title="%"), "Whiskers: 95% by task.")


def best_of(report: dict[str, Any]) -> str:
    lines = [
        Line(name, [int(k) for k in entry["best_of"]], list(entry["best_of"].values()))
        for _, name, entry in policies(report)
        if len(entry["best_of"]) >= 3
    ]
    drawing = line_chart(lines, x_title="k (log scale)", y_title="%", log_x=True, y_zero=True)
    return chart("Best of k", drawing, "Unbiased estimate: expected best of k attempts.")


def losses(curves: Curves) -> str:
    lines = [
        Line({"base": "base", "sft": "SFT"}[stage], *_points(curves[stage]["loss"], first_step=1))
        for stage in ("base", "sft")
        if "loss" in curves.get(stage, {})
    ]
    drawing = line_chart(
        lines, x_title="optimizer step (log scale)", y_title="loss (log scale)", log_x=True, log_y=True
    )
    return chart("Learning from text and demonstrations", drawing)


def rewards(report: dict[str, Any]) -> str:
    curve = report.get("rl", {}).get("curve", [])
    raw = [100 * point["pass_rate"] for point in curve]
    steps = [point["step"] for point in curve]
    lines = [Line("each batch", steps, raw), Line("mean of 5", steps, _smooth(raw, 5))]
    drawing = line_chart(lines, x_title="RL step", y_title="training tasks solved, %", y_zero=True)
    return chart("Learning from reward", drawing, "Every task is seen once, so this is performance on new tasks.")


def from_curve(report: dict[str, Any], keys: dict[str, str], title: str, y_title: str, *, log_y: bool = False) -> str:
    """Any per-step values of the RL curve, `keys` maps the curve's field to the name shown."""
    curve = report.get("rl", {}).get("curve", [])
    lines = [
        Line(name, [p["step"] for p in curve if key in p], [p[key] for p in curve if key in p])
        for key, name in keys.items()
    ]
    return chart(title, line_chart(lines, x_title="RL step", y_title=y_title, log_y=log_y, y_zero=not log_y))


def levels(report: dict[str, Any]) -> str:
    """SFT and RL by level, as a table with intervals."""
    bench = report.get("bench", {})
    if not {"sft", "rl"} <= bench.keys():
        return ""
    rows = []
    for kind in ("by_category", "by_level"):
        rows.append(f'<tr><th colspan="5">{kind.replace("_", " ")}</th></tr>')
        for name, after in bench["rl"][kind].items():
            before = bench["sft"][kind][name]
            change = after["avg"] - before["avg"]
            tone = "good" if change > 0 else "bad"
            rows.append(
                f"<tr><td>{escape(name)}</td><td>{before['tasks']}</td><td>{_with_interval(before)}</td>"
                f'<td>{_with_interval(after)}</td><td class="{tone}">{change:+.1f}</td></tr>'
            )
    head = "<tr><th></th><th>tasks</th><th>SFT, %</th><th>RL, %</th><th>points</th></tr>"
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _with_interval(entry: dict[str, Any]) -> str:
    return f"{entry['avg']:.1f} <span class='muted'>[{entry['ci95'][0]:.0f}, {entry['ci95'][1]:.0f}]</span>"


def _points(curve: list[tuple[int, float]], *, first_step: int) -> tuple[list[float], list[float]]:
    return [step + first_step for step, _ in curve], [value for _, value in curve]


def _smooth(values: list[float], width: int) -> list[float]:
    """Trailing mean of up to `width` values."""
    windows = [values[max(0, i - width + 1) : i + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]
