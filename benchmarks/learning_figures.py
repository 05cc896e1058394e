"""Draws `docs/learning.svg` and `docs/overlap.svg` from the committed results: `python benchmarks/learning_figures.py`.

The first compares each arm of `learning.py` with the base arm by attempts solved on the same tasks. It compares RL with its start and its
control on held-out tasks, and shows what replay does to the mismatch. All have 95% intervals. The second: async and sync of `overlap.py` with
recorded latencies, attempts solved by step with their bands, the ratio of their times in its title.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from forest_plot import Panel, Row, forest, stand_alone, text

from etude.evaluate.report.plot import LEFT, PlotLine, line_chart

RESULTS = Path(__file__).parent / "results"


def learning(result: dict[str, Any]) -> str:
    """What the parts are worth."""
    return forest([_arms(result), _held_out(result), _replay(result)], "What parts of RL are worth")


def _arms(result: dict[str, Any]) -> Panel:
    rows = []
    for arm, row in result["against_base"].items():
        p99 = [seed["dlogp_p99"] for seed in result["arms"][arm]["seeds"]]
        words = f"{row['tokens']:+.1f} · {sum(p99) / len(p99):.3f}"
        name = f"{arm.replace('_', ' ')} ({_seeds(len(p99))})"
        rows.append(Row(name, row["solved_points"], *row["solved_ci95"], words=words))
    unit = "points; whiskers: 95%, by task"
    return Panel("New tasks solved, difference to base", unit, rows, words="tokens · p99 |dlogp|")


def _held_out(result: dict[str, Any]) -> Panel:
    """Compares RL with its start and with rejection-sampled SFT, by seed and pooled."""
    found = result.get("control", {})
    named = [(f"seed {seed}", margins) for seed, margins in found.get("seeds", {}).items()]
    rows = []
    for name, margins in [*named, *([("all seeds", found["pooled"])] if found else [])]:
        for other, called in (("sft", "SFT"), ("rewarded_sft", "its control")):
            over = margins["rl_over"][other]
            words = f"{margins['avg_percent']['rl']:.1f}% · {margins['avg_percent'][other]:.1f}%"
            rows.append(Row(f"{name}, over {called}", over["avg_points"], *over["ci95"], words=words))
    return Panel("Held-out tasks, RL over others", "points; whiskers: 95%, by task", rows, words="RL · the other")


def _replay(result: dict[str, Any]) -> Panel:
    rows = [
        Row(
            f"{row['on']}, age {row['age']}",
            row["off_over_on"],
            *row["ci95"],
            words=f"{row['p99_off']:.3f} · {row['p99_on']:.3f}",
        )
        for row in result["replay"]
    ]
    unit = "ratio; whiskers: 95%, by group"
    return Panel("p99 |dlogp| without replay over that with it", unit, rows, 1.0, words="without · with")


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"


def curves(result: dict[str, Any]) -> str:
    """Attempts solved by step, async and the faster sync; what async takes of sync's time."""
    case = result["recorded"]
    runs = {name: run for name, run in case.items() if name.startswith(("sync", "async"))}
    sync = min((name for name in runs if name.startswith("sync")), key=lambda name: runs[name]["seconds"])
    lines = []
    for name in (sync, "async_1_threads"):
        points = runs[name]["curve_percent_low_high"]
        label = f"{name.split('_')[0]}, {runs[name]['samples_per_second']:g} rollouts a second"
        steps = [float(n + 1) for n in range(len(points))]
        lines.append(PlotLine(label, steps, [p[0] for p in points], [(p[1], p[2]) for p in points]))
    drawn = line_chart(lines, x_title="RL step", y_title="attempts solved, %", y_zero=True)
    inner = drawn.partition("</svg>")[0].partition(">")[2]
    keys = [text(LEFT, 278 + 16 * n, f"● {line.name}", "start", f"var(--c{n})") for n, line in enumerate(lines)]
    words = f"async takes {case['ratio']:.2f} of sync's time: {1 / case['ratio']:.2f} times the rollouts a second"
    return stand_alone([inner, *keys, text(LEFT, 312, words, "start value")], 320.0, words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    options = parser.parse_args()
    for name, draw in (("learning", learning), ("overlap", curves)):
        (options.docs / f"{name}.svg").write_text(draw(json.loads((RESULTS / f"{name}.json").read_text())))


if __name__ == "__main__":
    main()
