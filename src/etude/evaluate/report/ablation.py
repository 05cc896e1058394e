"""The ablation's figure: does a lower loss after continued pretraining mean a higher reward after RL?

One point a (budget, seed), coloured by budget, with the fitted line: one slope, and the mean of the seeds' intercepts
(`evaluate/bench/regression.py`). The band is the line's own 95% interval, computed from the slope's: least squares gives slope ± t·s/√Sxx
and, with as many points of each seed, line(x) ± t·s·√(1/n + (x - x̄)²/Sxx), Sxx summed within seeds; so the band's half width is the
slope's times √(Sxx/n + (x - x̄)²) (Draper & Smith, Applied Regression Analysis, the chapter on fitting a straight line). `etude ablate`
writes the figure next to `ablation.json`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from statistics import fmean
from typing import Any

from etude.evaluate.report.plot import HEIGHT, WIDTH, PlotLine, line_chart

X_TITLE = "loss after SFT on held-out sessions, nats a token"
Y_TITLE = "share of rollouts solved, RL's last steps"
STEPS = 40  # places at which the band is drawn: it is a curve
MARGIN = 0.05  # of the points' spread, to either side of them
FIT_HUE = 5  # the page's grey
LINE_HEIGHT, KEYS_A_LINE, WORDS_A_LINE = 16.0, 4, 88  # of the text under a stand-alone figure


def figure(ablation: dict[str, Any]) -> str:
    """The scatter with its line, band and colour keys, in the page's colours; without points an empty string.

    `ablation` is {"points": [{"budget", "seed", "loss", "reward", …}], "fit": {"slope", "ci95": of the slope, "intercept",
    "verdict"}, or None while there are too few points}.
    """
    points: list[dict[str, Any]] = ablation["points"]
    lines = []
    for budget in sorted({point["budget"] for point in points}):
        of = [point for point in points if point["budget"] == budget]
        lines.append(PlotLine(f"budget {budget:,}", [p["loss"] for p in of], [p["reward"] for p in of], joined=False))
    if ablation["fit"] is not None:
        lines.append(fitted_line(points, ablation["fit"]))
    return line_chart(lines, x_title=X_TITLE, y_title=Y_TITLE)


def fitted_line(points: Sequence[dict[str, Any]], fit: dict[str, Any]) -> PlotLine:
    """The fitted line over the points' range and a little beyond, with its 95% band."""
    xs = [float(point["loss"]) for point in points]
    seeds = {point["seed"] for point in points}
    means = {seed: fmean(p["loss"] for p in points if p["seed"] == seed) for seed in seeds}
    mean, spread = fmean(means.values()), sum((p["loss"] - means[p["seed"]]) ** 2 for p in points)
    margin = MARGIN * (max(xs) - min(xs))
    start, stop = min(xs) - margin, max(xs) + margin
    places = [start + (stop - start) * n / STEPS for n in range(STEPS + 1)]
    below, above = fit["slope"] - fit["ci95"][0], fit["ci95"][1] - fit["slope"]
    ys = [fit["intercept"] + fit["slope"] * x for x in places]
    arms = [math.sqrt(spread / len(xs) + (x - mean) ** 2) for x in places]
    band = [(y - below * arm, y + above * arm) for y, arm in zip(ys, arms, strict=True)]
    return PlotLine("fitted line, 95% band", places, ys, band, dashed=True, hue=FIT_HUE)


def verdict(ablation: dict[str, Any]) -> str:
    """What the fit says, in words."""
    if ablation["fit"] is None:
        return "too few points for a line"
    low, high = ablation["fit"]["ci95"]
    return (
        f"{ablation['fit']['verdict']}: slope {ablation['fit']['slope']:.3g}, 95% [{low:.3g}, {high:.3g}], over "
        f"{len(ablation['points'])} runs."
    )


def standalone(ablation: dict[str, Any]) -> str:
    """The figure as an .svg file of its own, for a README: with its colours, light and dark, its keys and what it shows.

    Raises ValueError without points.
    """
    drawn = figure(ablation)
    if not drawn:
        raise ValueError("the ablation has no points yet: a figure needs at least one finished cell")
    inner = drawn.partition("</svg>")[0].partition(">")[2]
    names = [f"budget {budget:,}" for budget in sorted({p["budget"] for p in ablation["points"]})]
    lines = [_keys(names[n : n + KEYS_A_LINE], n) for n in range(0, len(names), KEYS_A_LINE)]
    lines += [escape(words) for words in textwrap.wrap(verdict(ablation), WORDS_A_LINE)]
    height = HEIGHT + LINE_HEIGHT * len(lines) + 8
    below = "".join(
        f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT + LINE_HEIGHT * (row + 1) - 4:.0f}">{line}</text>'
        for row, line in enumerate(lines)
    )
    style = (files("etude.evaluate.report") / "plot.css").read_text()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(verdict(ablation))}"><style>{style} svg {{ font-family:system-ui,sans-serif }}</style>'
        f'<rect width="100%" height="100%" fill="var(--bg)"/>{inner}{below}</svg>\n'
    )


def _keys(names: Sequence[str], first: int) -> str:
    return "   ".join(
        f'<tspan fill="var(--c{(first + place) % 6})">●</tspan> {escape(name)}' for place, name in enumerate(names)
    )
