"""Small SVG charts drawn from numbers alone: lines with bands and bars with intervals. No script, no library.

A chart is a string of SVG that scales with its container. Colours come from CSS variables of the page (`--c0`..`--c5`),
so that light and dark modes share one drawing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape

WIDTH, HEIGHT = 560.0, 260.0
MOST_TICKS = 8  # more labels than that touch each other on a phone
LAST_TICK = 8.0  # a tick label this near to the right end of the axis is drawn to its left
LEFT, RIGHT, TOP, BOTTOM = 52.0, 14.0, 14.0, 38.0  # room for tick labels and the axis title


@dataclass(frozen=True)
class PlotLine:
    """One named curve of (x, y); `band` holds (low, high) for each point where an interval is known."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    band: Sequence[tuple[float, float]] = field(default_factory=list)
    dashed: bool = False  # of another run or study than the rest, or a level to compare with
    joined: bool = True  # False: its points alone, as in a scatter
    hue: int | None = None  # which of the page's colours; by default its place in the chart


@dataclass(frozen=True)
class Mark:
    """A place on the x axis that a reader has to know of, drawn as a thin upright with its words."""

    x: float
    words: str


@dataclass(frozen=True)
class Bar:
    """One bar with its 95% interval, in the axis' unit."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels between `start` and `end`; logarithmic axes show decades (or powers of two under 100)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False  # counts things: no ticks between two of them

    def at(self, value: float) -> float:
        low, high, v = self.low, self.high, value
        if self.log:
            low, high, v = math.log(low), math.log(high), math.log(max(value, self.low))
        share = 0.5 if high == low else (v - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        if not self.log:
            return [t for t in nice_ticks(self.low, self.high) if not self.whole or t == round(t)]
        base = 2.0 if self.high / self.low < 100 else 10.0
        first, last = math.ceil(math.log(self.low, base) - 1e-9), math.floor(math.log(self.high, base) + 1e-9)
        every = 1 + max(0, last - first) // MOST_TICKS
        ticks = [base**n for n in range(first, last + 1, every)]
        return ticks if len(ticks) >= 2 else [self.low, self.high]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers within [low, high]."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """A tick label: short, without trailing zeros."""
    if value != 0 and (abs(value) < 0.01 or abs(value) >= 100_000):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def line_chart(
    lines: Sequence[PlotLine],
    *,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
    y_zero: bool = False,
    marks: Sequence[Mark] = (),
) -> str:
    """Curves over a shared x axis. Points a log axis can't show are left out; no points: an empty string.

    A mark outside the curves' range is left out: the axis is theirs.
    """
    kept = [_drawable(line, log_x, log_y) for line in lines]
    kept = [line for line in kept if line.xs]
    if not kept:
        return ""
    xs = [x for line in kept for x in line.xs]
    ys = [y for line in kept for y in line.ys] + [
        v for line in kept for pair in line.band for v in pair if v > 0 or not log_y
    ]
    whole = all(x == round(x) for x in xs)
    x_axis = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, log_x, whole)
    y_low, y_high = _padded(min(ys), max(ys), log_y, y_zero)
    y_axis = Axis(y_low, y_high, HEIGHT - BOTTOM, TOP, log_y)
    parts = _frame(x_axis, y_axis, x_title, y_title)
    parts += [_mark(mark, x_axis) for mark in marks if min(xs) <= mark.x <= max(xs)]
    for index, line in enumerate(kept):
        parts.append(_curve(line, x_axis, y_axis, _colour(line, index)))
    return _svg(parts) + legend(kept)


def bar_chart(bars: Sequence[Bar], *, y_title: str, high: float = 100.0, digits: int = 1) -> str:
    """Bars from zero to at most `high` with interval whiskers and their values on top, printed with `digits` decimals."""
    if not bars:
        return ""
    y_axis = Axis(0.0, high, HEIGHT - BOTTOM, TOP + 12)
    x_axis = Axis(0.0, float(len(bars)), LEFT, WIDTH - RIGHT)
    parts = _frame(x_axis, y_axis, "", y_title, x_ticks=False)
    for index, bar in enumerate(bars):
        left, right = x_axis.at(index + 0.2), x_axis.at(index + 0.8)
        middle, top = (left + right) / 2, y_axis.at(bar.value)
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{y_axis.at(0) - top:.1f}" rx="3" '
            f'fill="var(--c{index % 6})" opacity="0.85"><title>{escape(bar.name)}: {bar.value:.{digits}f} '
            f"[{bar.low:.{digits}f}, {bar.high:.{digits}f}]</title></rect>"
        )
        parts.append(
            f'<path d="M{middle:.1f} {y_axis.at(bar.low):.1f}V{y_axis.at(bar.high):.1f}" class="whisker"/>'
            f'<text x="{middle:.1f}" y="{y_axis.at(bar.high) - 5:.1f}" class="value">{bar.value:.{digits}f}</text>'
        )
        parts += [  # one word a line: long names stay inside their bar's place
            f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 15 + 12 * row:.1f}" class="label">{escape(word)}</text>'
            for row, word in enumerate(bar.name.split(" ", 1))
        ]
    return _svg(parts)


def _colour(line: PlotLine, place: int) -> str:
    return f"var(--c{(place if line.hue is None else line.hue) % 6})"


def legend(lines: Sequence[PlotLine]) -> str:
    """Colour keys under a chart; left out for a single curve of the run itself."""
    if len(lines) < 2 and not any(line.dashed for line in lines):
        return ""
    keys = [
        f'<span><i class="{"dashed" if line.dashed else "solid"}" style="--key:{_colour(line, i)}"></i>{escape(line.name)}</span>'
        for i, line in enumerate(lines)
    ]
    return f'<div class="legend">{"".join(keys)}</div>'


def _drawable(line: PlotLine, log_x: bool, log_y: bool) -> PlotLine:
    """The points that the axes can show: finite, and positive where logarithmic."""
    keep = [
        i
        for i, (x, y) in enumerate(zip(line.xs, line.ys, strict=True))
        if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x) and (y > 0 or not log_y)
    ]
    band = [line.band[i] for i in keep] if line.band else []
    return replace(line, xs=[line.xs[i] for i in keep], ys=[line.ys[i] for i in keep], band=band)


def _padded(low: float, high: float, log: bool, zero: bool) -> tuple[float, float]:
    if log:
        return (low / 1.3, high * 1.3)
    if zero:
        low = min(0.0, low)
    room = (high - low or abs(high) or 1.0) * 0.06
    return (low if zero and low == 0 else low - room, high + room)


def _frame(x_axis: Axis, y_axis: Axis, x_title: str, y_title: str, *, x_ticks: bool = True) -> list[str]:
    parts = []
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="tick end">{number(tick)}</text>')
    for tick in x_axis.ticks() if x_ticks else []:
        x = x_axis.at(tick)
        side = " end" if x > WIDTH - RIGHT - LAST_TICK else ""  # else the picture's edge cuts it
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" class="tick{side}">{number(tick)}</text>')
    middle_y = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text x="12" y="{middle_y}" class="title" transform="rotate(-90 12 {middle_y})">{escape(y_title)}</text>'
    )
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 5}" class="title">{escape(x_title)}</text>')
    return parts


def _curve(line: PlotLine, x_axis: Axis, y_axis: Axis, colour: str) -> str:
    """Band, line and, where they can be distinguished, the points."""
    parts = [_band(line, x_axis, y_axis, colour)] if line.band else []
    if line.joined:
        points = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in zip(line.xs, line.ys, strict=True))
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
    if not line.joined or len(line.xs) <= 24:
        parts += [
            f'<circle cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" r="{3 if line.joined else 4.5}" fill="{colour}">'
            f"<title>{escape(line.name)}: {number(x)}, {number(y)}</title></circle>"
            for x, y in zip(line.xs, line.ys, strict=True)
        ]
    return "".join(parts)


def _mark(mark: Mark, x_axis: Axis) -> str:
    """Its words stand on whichever side has more room."""
    x = x_axis.at(mark.x)
    left = x > (LEFT + WIDTH - RIGHT) / 2
    return (
        f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" class="moment"/>'
        f'<text x="{x - 5 if left else x + 5:.1f}" y="{TOP + 10}" class="tick {"end" if left else "start"}">'
        f"{escape(mark.words)}</text>"
    )


def _band(line: PlotLine, x_axis: Axis, y_axis: Axis, colour: str) -> str:
    upper = [f"{x_axis.at(x):.1f},{y_axis.at(high):.1f}" for x, (_, high) in zip(line.xs, line.band, strict=True)]
    lower = [f"{x_axis.at(x):.1f},{y_axis.at(low):.1f}" for x, (low, _) in zip(line.xs, line.band, strict=True)]
    return f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{colour}" opacity="0.15"/>'


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img">{"".join(parts)}</svg>'
