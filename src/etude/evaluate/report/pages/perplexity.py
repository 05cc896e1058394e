"""How well each phase's checkpoint tells held-out projects, in all and by position in a document."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

from etude.evaluate.report.charts import chart
from etude.evaluate.report.knowledge import PHASES
from etude.evaluate.report.plot import Bar, Mark, PlotLine, bar_chart, line_chart
from etude.evaluate.report.table import Html, cell, table

ROOM = 1.25  # above the tallest bar's interval, for its value


def perplexity(report: dict[str, Any]) -> list[str]:
    """Table and bars; nothing where no phase was probed."""
    found = report.get("perplexity", {})
    phases = {phase: found[phase] for phase in PHASES if phase in found}
    if not phases:
        return []
    bars = [Bar(phase, entry["bits_per_byte"], *entry["ci95"]) for phase, entry in phases.items()]
    high = ROOM * max(bar.high for bar in bars)
    note = "Whiskers: 95%, files resampled. They overlap since files differ; the paired differences below compare file by file."
    drawn = chart("Bits a byte of held-out projects", bar_chart(bars, y_title="bits a byte", high=high, digits=3), note)
    return [
        f'<div class="charts">{drawn}{_positions(report)}</div>',
        _figures(phases),
        _paired(found.get("paired", {})),
    ]


def first_positions(report: dict[str, Any]) -> list[Mark]:
    """Where the base's training rows ended."""
    old = report.get("retrieval", {}).get("old_length")
    return [Mark(old, f"trained to here before long: {old:,}")] if old else []


def middle(start: float, stop: float) -> float:
    """The geometric middle of a bucket of positions [start, stop), for a logarithmic axis."""
    return math.sqrt(max(1.0, start) * max(1.0, stop))


def _positions(report: dict[str, Any]) -> str:
    by_phase = report["perplexity"].get("by_position", {})
    lines = [
        PlotLine(
            phase,
            [middle(start, stop) for start, stop, *_ in by_phase[phase]],
            [nats for _, _, nats, *_ in by_phase[phase]],
            [(low, high) for *_, low, high in by_phase[phase]],
            hue=place,
        )
        for place, phase in enumerate(PHASES)
        if phase in by_phase
    ]
    title = "position in the document, tokens (log scale)"
    drawing = line_chart(lines, x_title=title, y_title="nats a token", log_x=True, marks=first_positions(report))
    return chart("Loss by position", drawing, "Held-out long documents. Bands: 95%, by document.")


def _figures(phases: dict[str, dict[str, Any]]) -> str:
    rows = [
        [
            phase,
            Html(f"{entry['bits_per_byte']:.4f} {interval(entry['ci95'], 4)}"),
            f"{entry['perplexity']:.2f}",
            f"{entry['nats']:,.0f}",
            f"{entry['tokens']:,}",
            cell(entry["files"]),
            f"{entry['window']:,} by {entry['stride']:,}",
        ]
        for phase, entry in phases.items()
    ]
    head = ["codebase perplexity", "bits a byte [95%]", "a token", "nats in all", "tokens", "files", "window by stride"]
    return table(head, rows)


def _paired(found: dict[str, dict[str, Any]]) -> str:
    rows = [[name.replace("_", " "), lower(entry["bits_per_byte"], entry["ci95"])] for name, entry in found.items()]
    return table(["paired by file, less is better", "bits a byte [95%]"], rows) if rows else ""


def lower(value: float, ci95: Iterable[float]) -> Html:
    """A difference of which less is better: green or red only where the interval leaves zero out."""
    low, high = ci95
    tone = "good" if high < 0 else "bad" if low > 0 else "open"
    return Html(f'<b class="{tone}">{value:+.4f}</b> {interval((low, high), 4, sign=True)}')


def interval(ci95: Iterable[float], digits: int, *, sign: bool = False) -> Html:
    """`[1.98, 2.05]`, muted."""
    form = f"{'+' if sign else ''}.{digits}f"
    return Html(f'<span class="muted">[{escape(", ".join(format(bound, form) for bound in ci95))}]</span>')
