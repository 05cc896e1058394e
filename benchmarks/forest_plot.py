"""Forest plots: differences or ratios, one row each with its 95% interval, in panels under one another. The SVG needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from etude.evaluate.report.plot import RIGHT, WIDTH, Axis, nice_ticks, number

ROW, HEAD, FOOT = 24.0, 44.0, 42.0
NAMES = 190.0  # width of the rows' names
FIGURES = 130.0  # width of the text at the right


@dataclass(frozen=True)
class Row:
    """One estimate with its interval; `words` stand at its right."""

    name: str
    value: float
    low: float
    high: float
    words: str = ""


@dataclass(frozen=True)
class Panel:
    """Rows on one axis; `nothing` is the value that says no difference."""

    title: str
    unit: str
    rows: Sequence[Row]
    nothing: float = 0.0
    words: str = ""  # over the rows' words


def forest(panels: Sequence[Panel], label: str) -> str:
    """All panels that have rows."""
    parts: list[str] = []
    top = 0.0
    for panel in panels:
        if panel.rows:
            parts += _panel(panel, top)
            top += HEAD + ROW * len(panel.rows) + FOOT
    return stand_alone(parts, top, label)


def _panel(panel: Panel, top: float) -> list[str]:
    bounds = [bound for row in panel.rows for bound in (row.low, row.high)] + [panel.nothing]
    room = 0.08 * (max(bounds) - min(bounds) or 1.0)
    axis = Axis(min(bounds) - room, max(bounds) + room, NAMES, WIDTH - RIGHT - FIGURES)
    low, high = top + HEAD - 8, top + HEAD + ROW * len(panel.rows)
    parts = [text(8, top + 16, panel.title, "start value"), text(WIDTH - FIGURES, low - 4, panel.words, "start")]
    for tick in nice_ticks(axis.low, axis.high):
        parts.append(f'<path d="M{axis.at(tick):.1f} {low}V{high}" class="grid"/>')
        parts.append(text(axis.at(tick), high + 14, number(tick), "tick"))
    parts.append(f'<path d="M{axis.at(panel.nothing):.1f} {low}V{high}" class="moment"/>')
    parts.append(text(axis.at((axis.low + axis.high) / 2), high + 28, panel.unit, ""))
    for place, row in enumerate(panel.rows):
        y = top + HEAD + ROW * (place + 0.5)
        parts.append(text(NAMES - 10, y + 4, row.name, "end"))
        parts.append(f'<path d="M{axis.at(row.low):.1f} {y}H{axis.at(row.high):.1f}" class="whisker"/>')
        parts.append(f'<circle cx="{axis.at(row.value):.1f}" cy="{y}" r="4.5" fill="var(--c0)"/>')
        parts.append(text(WIDTH - FIGURES, y + 4, row.words, "start"))
    return parts


def text(x: float, y: float, words: str, kind: str, colour: str = "") -> str:
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{fill}>{escape(words)}</text>'


def stand_alone(parts: Sequence[str], height: float, label: str) -> str:
    """A file with its colours, light and dark."""
    style = (files("etude.evaluate.report") / "plot.css").read_text()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f"<style>{style} svg {{ font-family:system-ui,sans-serif }}</style>"
        f'<rect width="100%" height="100%" fill="var(--bg)"/>{"".join(parts)}</svg>\n'
    )
