"""Where labels stand: near what they name, never over one another, over a marker or over the frame.

Greedy, dearest first: each label takes the best free place among rings of places around its point. What finds none is left to
the legend, so the promise holds for any number of points.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

RINGS = (7.0, 13.0, 22.0, 34.0, 50.0, 70.0)  # pixels between a marker and its label
TURNS = 16  # places on a ring
GAP = 1.5  # pixels kept free around a label
LEADER_FROM = 20.0  # a label further away than this is tied to its point by a line
CROSSING = 6.0  # a place over a line of the plot counts as this many pixels further away
MISREAD = 30.0  # the same for a place nearer to another point than to its own


@dataclass(frozen=True)
class Box:
    """A rectangle, y growing downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, frame: Box) -> bool:
        return (
            frame.left <= self.left
            and self.right <= frame.right
            and frame.top <= self.top
            and self.bottom <= frame.bottom
        )


@dataclass(frozen=True)
class LabelRequest:
    """A label for the point (x, y) whose marker has this radius."""

    text: str
    x: float
    y: float
    radius: float
    size: float  # of the font, pixels


@dataclass(frozen=True)
class Placed:
    """`box` holds the text; `leader` starts at the point's marker where the label is far from it."""

    text: str
    box: Box
    leader: tuple[float, float, float, float] | None


Line = tuple[float, float, float, float]


def place(
    wanted: Sequence[LabelRequest], frame: Box, taken: Sequence[Box], lines: Sequence[Line] = ()
) -> list[Placed | None]:
    """A place for each, in order; None for one that has none. `taken` may not be covered, `lines` should not be."""
    held = list(taken)
    found: list[Placed | None] = []
    spots = {(label.x, label.y) for label in wanted}
    for label in wanted:
        others = spots - {(label.x, label.y)}
        best = min(_places(label, frame, held, lines, others), key=lambda pair: pair[0], default=None)
        found.append(None if best is None else best[1])
        if best is not None:
            held.append(_grown(best[1].box, GAP))
    return found


def width_of(text: str, size: float) -> float:
    """Pixels that a sans-serif text takes at most: 0.62 em a letter, a whole em for East Asian ones."""
    return size * sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.62 for c in text)


def _places(
    label: LabelRequest, frame: Box, held: Sequence[Box], lines: Sequence[Line], others: Collection[tuple[float, float]]
) -> Iterator[tuple[float, Placed]]:
    width, height = width_of(label.text, label.size), 1.15 * label.size
    for ring in RINGS:
        for turn in range(TURNS):
            angle = 2 * math.pi * turn / TURNS
            dx, dy = math.cos(angle), math.sin(angle)
            reach = label.radius + ring
            # The box touches the ring with the side that looks at the point.
            x = label.x + dx * (reach + width / 2 * abs(dx) ** 0.5)
            y = label.y + dy * (reach + height / 2)
            box = Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            if not box.within(frame) or any(box.overlaps(other) for other in held):
                continue
            crossed = sum(crosses(line, box) for line in lines)
            own = _away(box, label.x, label.y)
            misread = any(_away(box, *other) < own + GAP for other in others)
            worth = (
                ring + CROSSING * crossed + MISREAD * misread + 2 * (dx < -0.1) + 1.5 * (dy > 0.1)
            )  # to the right and above reads best
            leader = _leader(label, box) if ring > LEADER_FROM else None
            yield worth, Placed(label.text, box, leader)


def crosses(line: Line, box: Box) -> bool:
    """Whether a stretch runs through a box (Liang and Barsky's clipping)."""
    x, y, to_x, to_y = line
    dx, dy = to_x - x, to_y - y
    enters, leaves = 0.0, 1.0
    for step, room in ((-dx, x - box.left), (dx, box.right - x), (-dy, y - box.top), (dy, box.bottom - y)):
        if step == 0:
            if room < 0:
                return False
            continue
        at = room / step
        if step < 0:
            enters = max(enters, at)
        else:
            leaves = min(leaves, at)
    return enters <= leaves


def _away(box: Box, x: float, y: float) -> float:
    """From a point to the nearest of a box, pixels."""
    return math.hypot(max(box.left - x, 0.0, x - box.right), max(box.top - y, 0.0, y - box.bottom))


def _grown(box: Box, by: float) -> Box:
    return Box(box.left - by, box.top - by, box.right + by, box.bottom + by)


def _leader(label: LabelRequest, box: Box) -> Line:
    x, y = min(max(label.x, box.left), box.right), min(max(label.y, box.top), box.bottom)
    away = math.hypot(x - label.x, y - label.y) or 1.0
    cut = (label.radius + 2) / away
    return (label.x + (x - label.x) * cut, label.y + (y - label.y) * cut, x, y)
