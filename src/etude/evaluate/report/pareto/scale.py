"""Axes of the plot: linear, or logarithmic where the values span a decade; round ticks either way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from etude.evaluate.report.plot import Axis, nice_ticks

DECADE = 10.0  # a span from which on a linear axis would press half of the points into its first tenth
MOST_TICKS = 9


def cost_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """Over positive values that span a decade logarithmic, else linear; with room at both ends."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= DECADE:
        return Axis(low / (high / low) ** 0.06, high * (high / low) ** 0.06, start, end, log=True)
    room = 0.08 * ((high - low) or abs(high) or 1.0)
    return Axis(max(0.0, low - room) if low >= 0 else low - room, high + room, start, end)


def score_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """Percent: never outside 0 to 100, and at least ten points high, so that noise does not look like a difference."""
    low, high = min(values), max(values)
    room = max(0.08 * (high - low), 5.0 - (high - low) / 2)
    return Axis(max(0.0, low - room), min(100.0, high + room), start, end)


def ticks(axis: Axis) -> list[float]:
    """1, 2 and 5 of each decade while they are few enough, then the decades alone."""
    if not axis.log:
        return nice_ticks(axis.low, axis.high, 6)
    decades = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    for marks in ((1, 2, 5), (1, 3), (1,)):
        found = [m * 10.0**d for d in decades for m in marks if axis.low <= m * 10.0**d <= axis.high]
        if len(found) <= MOST_TICKS:
            return found
    every = 1 + len(found) // MOST_TICKS
    return found[::every]


def format_value(value: float, axis: str) -> str:
    """`$0.002`, `20k`, `1.5M`, `40`."""
    if axis == "dollars":
        return f"${value:.3g}" if value < 1000 else f"${value:,.0f}"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
