"""The drawing: crosses of both intervals, efforts joined, the front as steps, best-of-k as dotted curves, labels that never overlap.

One SVG with its own style, so that it works alone in a paper and inline in the report. No script.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Literal

from etude.evaluate.report.pareto.labels import Box, LabelRequest, Line, Placed, place
from etude.evaluate.report.pareto.points import AXES, Point
from etude.evaluate.report.plot import Axis, nice_ticks

# Axes of the plot: linear, or logarithmic where the values span a decade; round ticks either way.


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


# Markers that tell policies apart without colour, too: a shape each, filled where the point is on the front.


RADIUS = 5.5
HUES = 7  # Okabe and Ito's colours, distinguishable with any colour vision; then shapes alone
SIDES = ((0, 0.0), (4, 45.0), (3, -90.0), (4, 0.0), (3, 90.0), (6, 0.0), (5, -90.0))  # (corners, turn): 0 is a circle


def mark(place: int, x: float, y: float, filled: bool, title: str) -> str:
    """Policy number `place`'s marker; `title` is markup-safe."""
    corners, turn = SIDES[(place + place // HUES) % len(SIDES)]
    kind = f'class="mark{" on" if filled else ""}"'
    title_element = f"<title>{title}</title>"
    if corners == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" {kind}>{title_element}</circle>'
    reach = RADIUS * (1.35 if corners == 3 else 1.2)  # polygons look smaller than a circle of their radius
    angles = [math.radians(turn + 360 * n / corners) for n in range(corners)]
    points = " ".join(f"{x + reach * math.cos(a):.1f},{y + reach * math.sin(a):.1f}" for a in angles)
    return f'<polygon points="{points}" {kind}>{title_element}</polygon>'


Theme = Literal["auto", "light", "dark"]
WIDTH, HEIGHT = 720.0, 460.0
FRAME = Box(62.0, 44.0, 702.0, 388.0)
CAP = 3.5  # half of the bar at an interval's end
POLICY_SIZE, EFFORT_SIZE = 12.5, 11.0  # as in plot.css


@dataclass(frozen=True)
class Scales:
    """From (cost, score) to pixels."""

    x: Axis
    y: Axis

    def at(self, cost: float, score: float) -> tuple[float, float]:
        clipped = min(max(cost, self.x.low), self.x.high)
        return self.x.at(clipped), self.y.at(min(max(score, self.y.low), self.y.high))


def draw(
    curves: Mapping[str, Sequence[Point]],
    axis: str,
    *,
    title: str = "",
    best_of: bool = False,
    theme: Theme = "auto",
) -> str:
    """The SVG. With `best_of` each point has a dotted curve: the expected best of k attempts, at k times the cost."""
    points = [point for own in curves.values() for point in own]
    scales = _scales(points, best_of)
    stretches: list[Line] = []
    body = [*_frame(scales, axis), _front(points, scales, stretches)]
    for number, own in enumerate(curves.values()):
        body.append(f'<g class="hue{number % HUES}">{_curve(number, own, scales, best_of, stretches)}</g>')
    body += _labels(curves, scales, stretches)
    foot = "crosses: 95% intervals by task; steps: Pareto front, its points filled"
    foot += "; dotted: best of k at k times the cost" if best_of else ""
    body.append(f'<text class="foot" x="{FRAME.left}" y="{HEIGHT - 10}">{foot}</text>')
    head = f'<text class="head" x="{FRAME.left}" y="26">{escape(title)}</text>' if title else ""
    style = (files("etude.evaluate.report.pareto") / "plot.css").read_text()
    label = escape(title or f"Score against {AXES[axis]}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" class="pareto {theme}" role="img" '
        f'aria-label="{label}"><style>{style}</style><rect class="bg" width="100%" height="100%"/>{head}{"".join(body)}</svg>'
    )


def best_points(point: Point) -> list[tuple[float, float]]:
    """(cost, score) of the best of 1, 2, 4 ... attempts: k attempts cost k times as much."""
    return [(k * point.cost, score) for k, score in sorted(point.best_of.items())]


def staircase(points: Sequence[Point]) -> list[tuple[float, float]]:
    """The front's corners from the cheapest on: at a given cost, the best score that can be had for it."""
    corners: list[tuple[float, float]] = []
    for point in sorted((p for p in points if p.on_front), key=lambda p: (p.cost, p.score)):
        if corners:
            corners.append((point.cost, corners[-1][1]))
        corners.append((point.cost, point.score))
    return corners


def _scales(points: Sequence[Point], best_of: bool) -> Scales:
    costs = [value for p in points for value in (p.cost, *p.cost_ci95)]
    positive = [value for value in costs if value > 0]
    if all(
        p.cost > 0 for p in points
    ):  # an interval that reaches zero does not forbid a logarithm; it ends at the frame
        costs = [max(value, min(p.cost for p in points) / 3) for value in costs] if positive else costs
    scores = [value for p in points for value in (p.score, *p.score_ci95)]
    if best_of:
        more = [pair for p in points for pair in best_points(p)]
        costs, scores = costs + [cost for cost, _ in more], scores + [score for _, score in more]
    return Scales(cost_axis(costs, FRAME.left, FRAME.right), score_axis(scores, FRAME.bottom, FRAME.top))


def _frame(scales: Scales, axis: str) -> list[str]:
    parts = []
    for tick in ticks(scales.y):
        y = scales.y.at(tick)
        parts.append(f'<path class="grid" d="M{FRAME.left} {y:.1f}H{FRAME.right}"/>')
        parts.append(f'<text class="tick end" x="{FRAME.left - 7}" y="{y + 4:.1f}">{tick:g}</text>')
    for tick in ticks(scales.x):
        x = scales.x.at(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {FRAME.top}V{FRAME.bottom}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{FRAME.bottom + 17}">{escape(format_value(tick, axis))}</text>'
        )
    parts.append(f'<path class="frame" d="M{FRAME.left} {FRAME.top}V{FRAME.bottom}H{FRAME.right}"/>')
    middle = (FRAME.top + FRAME.bottom) / 2
    parts.append(f'<text class="title" x="16" y="{middle}" transform="rotate(-90 16 {middle})">average score, %</text>')
    words = AXES[axis] + (" (log scale)" if scales.x.log else "")
    parts.append(f'<text class="title" x="{(FRAME.left + FRAME.right) / 2}" y="{FRAME.bottom + 38}">{words}</text>')
    return parts


def _front(points: Sequence[Point], scales: Scales, stretches: list[Line]) -> str:
    corners = [scales.at(*corner) for corner in staircase(points)]
    if not corners:
        return ""
    path = [(corners[0][0], FRAME.bottom), *corners, (FRAME.right, corners[-1][1])]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in path)
    stretches += [(*a, *b) for a, b in zip(path, path[1:], strict=False)]
    return f'<path class="beaten" d="M{line}V{FRAME.bottom}Z"/><path class="front" d="M{line}"/>'


def _curve(number: int, own: Sequence[Point], scales: Scales, best_of: bool, stretches: list[Line]) -> str:
    parts = []
    places = [scales.at(p.cost, p.score) for p in own]
    if best_of:
        for point in own:
            more = [scales.at(*pair) for pair in best_points(point)]
            parts.append(f'<path class="best" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in more)}"/>' if more else "")
            parts += [f'<circle class="more" cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in more[1:]]
            stretches += [(*a, *b) for a, b in zip(more, more[1:], strict=False)]
    for point, (x, y) in zip(own, places, strict=True):
        left, low = scales.at(point.cost_ci95[0], point.score_ci95[0])
        right, high = scales.at(point.cost_ci95[1], point.score_ci95[1])
        across = (
            f"M{left:.1f} {y:.1f}H{right:.1f}M{left:.1f} {y - CAP:.1f}v{2 * CAP}M{right:.1f} {y - CAP:.1f}v{2 * CAP}"
        )
        upright = f"M{x:.1f} {low:.1f}V{high:.1f}M{x - CAP:.1f} {low:.1f}h{2 * CAP}M{x - CAP:.1f} {high:.1f}h{2 * CAP}"
        parts.append(f'<path class="cross" d="{across}{upright}"/>')
        stretches += [(left, y, right, y), (x, low, x, high)]
    if len(places) > 1:
        parts.append(f'<path class="curve" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>')
        stretches += [(*a, *b) for a, b in zip(places, places[1:], strict=False)]
    marks = sorted(zip(own, places, strict=True), key=lambda pair: pair[0].on_front)  # the front's lie on top
    parts += [mark(number, x, y, p.on_front, _tip(p)) for p, (x, y) in marks]
    return "".join(parts)


def _labels(curves: Mapping[str, Sequence[Point]], scales: Scales, stretches: Sequence[Line]) -> list[str]:
    """Each policy's name at its last point, its efforts at theirs; what finds no place is named below the frame's top."""
    names, efforts, taken = [], [], []
    for number, own in enumerate(curves.values()):
        for point in own:
            x, y = scales.at(point.cost, point.score)
            taken.append(Box(x - RADIUS - 1, y - RADIUS - 1, x + RADIUS + 1, y + RADIUS + 1))
        x, y = scales.at(own[-1].cost, own[-1].score)
        text = own[0].name if len(own) == 1 else own[0].policy
        names.append((number, LabelRequest(text, x, y, RADIUS, POLICY_SIZE)))
        efforts += [
            (number, LabelRequest(words, x, y, RADIUS, EFFORT_SIZE))
            for words, x, y in _efforts(own, scales)
            if len(own) > 1
        ]
    everyone = names + efforts
    found = place([label for _, label in everyone], FRAME, taken, stretches)
    parts, left_out = [], []
    for (number, label), placed in zip(everyone, found, strict=True):
        kind = "policy" if label.size == POLICY_SIZE else "effort"
        if placed is not None:
            parts.append(_label(number, kind, placed))
        elif kind == "policy":
            left_out.append(label.text)
    if left_out:  # their markers' tips and the table still name them
        parts.append(
            f'<text class="foot end" x="{FRAME.right}" y="{HEIGHT - 10}">{len(left_out)} names have no room</text>'
        )
    return parts


def _efforts(own: Sequence[Point], scales: Scales) -> list[tuple[str, float, float]]:
    """What to write at each place; efforts that lie on one another share their words."""
    found: list[tuple[str, float, float]] = []
    for point in own:
        x, y = scales.at(point.cost, point.score)
        near = next((i for i, (_, at_x, at_y) in enumerate(found) if math.hypot(x - at_x, y - at_y) < RADIUS / 2), None)
        if not point.effort:
            continue
        if near is None:
            found.append((point.effort, x, y))
        else:
            words, at_x, at_y = found[near]
            found[near] = (f"{words}, {point.effort}", at_x, at_y)
    return found


def _label(number: int, kind: str, placed: Placed) -> str:
    y = placed.box.bottom - 0.28 * (placed.box.bottom - placed.box.top)
    middle = (placed.box.left + placed.box.right) / 2
    line = ""
    if placed.leader is not None:
        from_x, from_y, to_x, to_y = placed.leader
        line = f'<path class="leader" d="M{from_x:.1f} {from_y:.1f}L{to_x:.1f} {to_y:.1f}"/>'
    return f'<g class="hue{number % HUES}">{line}<text class="{kind}" x="{middle:.1f}" y="{y:.1f}">{escape(placed.text)}</text></g>'


def _tip(point: Point) -> str:
    share = "" if point.share is None else f"; on the front in {point.share:.0%} of resamples"
    return escape(
        f"{point.name}: {point.score:.1f}% [{point.score_ci95[0]:.1f}, {point.score_ci95[1]:.1f}] for "
        f"{point.cost:.4g} [{point.cost_ci95[0]:.4g}, {point.cost_ci95[1]:.4g}]{share}"
    )
