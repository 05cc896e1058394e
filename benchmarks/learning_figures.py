"""Draws `docs/learning.svg` and `docs/overlap.svg` from the committed results: `python benchmarks/learning_figures.py`.

The first: each arm of `learning.py` beside the base arm, attempts solved on the same tasks, with 95% intervals. The second: async and sync
of `overlap.py` with recorded latencies, attempts solved by step with their bands, the ratio of their times in its title.
"""

from __future__ import annotations

import argparse
import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from etude.report.plot import LEFT, RIGHT, WIDTH, Axis, Line, line_chart, nice_ticks, number

RESULTS = Path(__file__).parent / "results"
ROW, HEAD, FOOT = 24.0, 40.0, 34.0
NAMES = 120.0  # width of the arms' names
FIGURES = 176.0  # width of what is told in words at the right


def forest(result: dict[str, Any]) -> str:
    """One row an arm: its difference to base in points, with its interval; tokens and mismatch in words."""
    rows = result["against_base"]
    spans = [bound for row in rows.values() for bound in row["solved_ci95"]]
    axis = Axis(min(spans) - 1, max(spans) + 1, NAMES, WIDTH - RIGHT - FIGURES)
    height = HEAD + ROW * len(rows) + FOOT
    low, high = HEAD - 8, HEAD + ROW * len(rows)
    parts = [_text(8, 16, f"Attempts solved, difference to base ({_seeds(result)})", "start value")]
    parts += [_text(WIDTH - FIGURES, 32, "tokens a rollout · p99 |dlogp|", "start")]
    for tick in nice_ticks(axis.low, axis.high):
        parts.append(f'<path d="M{axis.at(tick):.1f} {low}V{high}" class="{"moment" if tick == 0 else "grid"}"/>')
        parts.append(_text(axis.at(tick), high + 15, number(tick), "tick"))
    parts.append(_text(axis.at((axis.low + axis.high) / 2), high + 30, "points; whiskers: 95%, by task", ""))
    for place, (arm, row) in enumerate(rows.items()):
        y = HEAD + ROW * (place + 0.5)
        first, last = (axis.at(bound) for bound in row["solved_ci95"])
        parts.append(_text(NAMES - 10, y + 4, arm.replace("_", " "), "end"))
        parts.append(f'<path d="M{first:.1f} {y}H{last:.1f}" class="whisker"/>')
        parts.append(f'<circle cx="{axis.at(row["solved_points"]):.1f}" cy="{y}" r="4.5" fill="var(--c0)"/>')
        parts.append(_text(WIDTH - FIGURES, y + 4, f"{row['tokens']:+.1f} · {_mismatch(result, arm)}", "start"))
    return _file(parts, height, "What parts of RL are worth")


def curves(result: dict[str, Any]) -> str:
    """Attempts solved by step, async and the faster sync; what async takes of sync's time."""
    case = result["recorded"]
    runs = {name: run for name, run in case.items() if name.startswith(("sync", "async"))}
    sync = min((name for name in runs if name.startswith("sync")), key=lambda name: runs[name]["seconds"])
    lines = []
    for name in (sync, "async_1_threads"):
        points = runs[name]["curve_percent_low_high"]
        told = f"{name.split('_')[0]}, {runs[name]['samples_per_second']:g} rollouts a second"
        steps = [float(n + 1) for n in range(len(points))]
        lines.append(Line(told, steps, [p[0] for p in points], [(p[1], p[2]) for p in points]))
    drawn = line_chart(lines, x_title="RL step", y_title="attempts solved, %", y_zero=True)
    inner = drawn.partition("</svg>")[0].partition(">")[2]
    keys = [_text(LEFT, 278 + 16 * n, f"● {line.name}", "start", f"var(--c{n})") for n, line in enumerate(lines)]
    words = f"async takes {case['ratio']:.2f} of sync's time: {1 / case['ratio']:.2f} times the rollouts a second"
    return _file([inner, *keys, _text(LEFT, 312, words, "start value")], 320.0, words)


def _seeds(result: dict[str, Any]) -> str:
    tasks = max(row["tasks"] for row in result["against_base"].values())
    seeds = max(len(arm["seeds"]) for arm in result["arms"].values())
    return f"{seeds} seed{'s' if seeds > 1 else ''}, {tasks} tasks"


def _mismatch(result: dict[str, Any], arm: str) -> str:
    values = [seed["dlogp_p99"] for seed in result["arms"][arm]["seeds"]]
    return f"{sum(values) / len(values):.3f}"


def _text(x: float, y: float, words: str, kind: str, colour: str = "") -> str:
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{fill}>{escape(words)}</text>'


def _file(parts: list[str], height: float, label: str) -> str:
    """With its colours, light and dark, so that it stands alone."""
    style = (files("etude.report") / "plot.css").read_text()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f"<style>{style} svg {{ font-family:system-ui,sans-serif }}</style>"
        f'<rect width="100%" height="100%" fill="var(--bg)"/>{"".join(parts)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    options = parser.parse_args()
    for name, draw in (("learning", forest), ("overlap", curves)):
        (options.docs / f"{name}.svg").write_text(draw(json.loads((RESULTS / f"{name}.json").read_text())))


if __name__ == "__main__":
    main()
