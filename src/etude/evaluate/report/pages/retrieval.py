"""Does a checkpoint use text that is far back? Questions with one right answer among several, by length and depth."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from etude.evaluate.report.charts import chart
from etude.evaluate.report.knowledge import PHASES
from etude.evaluate.report.pages.perplexity import first_positions
from etude.evaluate.report.plot import PlotLine, line_chart
from etude.evaluate.report.table import Html, table

KINDS = {"definition": "Looking up a definition", "test": "Which test covers a function"}
CHANCE_HUE = 5  # the page's grey
Z95 = 1.959964  # of the normal distribution


def retrieval(report: dict[str, Any]) -> list[str]:
    """A chart or two a kind of question, then a table of depths for each.

    Entries are {"kind", "length", "depth": 0 to 1, "questions", "accuracy": 0 to 1, "ci95", "chance"}, perhaps with "nats" of
    the right answer. An entry of depth None tells of all depths together; where there is none they are pooled.
    """
    found = report.get("retrieval", {})
    entries = {phase: found[phase] for phase in PHASES if found.get(phase)}
    kinds = sorted({entry["kind"] for of in entries.values() for entry in of})
    if not kinds:
        return []
    drawn = "".join(draw(report, kind, entries) for kind in kinds for draw in (_by_length, _nats_by_length))
    return [f'<div class="charts">{drawn}</div>', *(_by_depth(kind, entries) for kind in kinds)]


def together(entries: list[dict[str, Any]]) -> tuple[float, float, float]:
    """(accuracy, low, high) of one length in percent."""
    whole = next((entry for entry in entries if entry["depth"] is None), None)
    return (
        pool_accuracy(entries)
        if whole is None
        else (100 * whole["accuracy"], *(100 * bound for bound in whole["ci95"]))
    )


def pool_accuracy(entries: list[dict[str, Any]]) -> tuple[float, float, float]:
    """(accuracy, low, high) of several cells as one, in percent, each question counting once; Wilson's 95% interval (1927)."""
    n = sum(entry["questions"] for entry in entries)
    p = sum(entry["questions"] * entry["accuracy"] for entry in entries) / n
    scale = 1 + Z95**2 / n
    middle = (p + Z95**2 / (2 * n)) / scale
    arm = Z95 / scale * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    return 100 * p, 100 * max(0.0, middle - arm), 100 * min(1.0, middle + arm)


def _by_length(report: dict[str, Any], kind: str, entries: dict[str, list[dict[str, Any]]]) -> str:
    lines = []
    for place, phase in enumerate(PHASES):
        points = [(length, together(of)) for length, of in _cells(entries.get(phase, []), kind, "length").items()]
        band = [(low, high) for _, (_, low, high) in points]
        lines.append(PlotLine(phase, [x for x, _ in points], [y for _, (y, _, _) in points], band, hue=place))
    chances: dict[int, float] = {}
    for of in entries.values():
        chances |= {entry["length"]: 100 * entry["chance"] for entry in of if entry["kind"] == kind}
    lengths = sorted(chances)
    lines.append(PlotLine("chance", lengths, [chances[n] for n in lengths], dashed=True, hue=CHANCE_HUE))
    drawing = line_chart(
        lines,
        x_title="length of the context, tokens (log scale)",
        y_title="right, %",
        log_x=True,
        y_zero=True,
        marks=first_positions(report),
    )
    return chart(KINDS.get(kind, kind), drawing, "All depths together. Bands: 95%, by question.")


def _nats_by_length(report: dict[str, Any], kind: str, entries: dict[str, list[dict[str, Any]]]) -> str:
    """How sure of the right answer: steadier than right or wrong where a model is small."""
    lines = []
    for place, phase in enumerate(PHASES):
        cells = _cells([entry for entry in entries.get(phase, []) if "nats" in entry], kind, "length")
        ys = [_mean_nats(of) for of in cells.values()]
        lines.append(PlotLine(phase, list(cells), ys, hue=place))
    x_title, marks = "length of the context, tokens (log scale)", first_positions(report)
    drawing = line_chart(
        lines, x_title=x_title, y_title="nats of the right answer", log_x=True, y_zero=True, marks=marks
    )
    return chart(f"{KINDS.get(kind, kind)}: surprise at the answer", drawing, "Less is better.")


def _mean_nats(entries: list[dict[str, Any]]) -> float:
    whole = [entry for entry in entries if entry["depth"] is None] or entries
    return sum(e["questions"] * e["nats"] for e in whole) / sum(e["questions"] for e in whole)


def _by_depth(kind: str, entries: dict[str, list[dict[str, Any]]]) -> str:
    """Accuracy by phase and length down, depth across; coloured from chance to all right."""
    depths = sorted({e["depth"] for of in entries.values() for e in of if e["kind"] == kind and e["depth"] is not None})
    if len(depths) < 2:
        return ""
    rows: list[list[str]] = []
    for phase, of in entries.items():
        cells = _cells(of, kind, "length")
        rows += [[phase]] if cells else []
        for length, by_length in cells.items():
            at = {entry["depth"]: entry for entry in by_length}
            rows.append([f"{length:,} tokens", *(_heat(at[depth]) if depth in at else "" for depth in depths)])
    head = ["right, %", *(f"depth {depth:.0%}" for depth in depths)]
    return (
        f"<details><summary>{escape(KINDS.get(kind, kind))}: by length and depth</summary>{table(head, rows)}</details>"
    )


def _cells(entries: list[dict[str, Any]], kind: str, key: str) -> dict[int, list[dict[str, Any]]]:
    """The kind's entries by length, shortest first."""
    found: dict[int, list[dict[str, Any]]] = {}
    for entry in sorted((entry for entry in entries if entry["kind"] == kind), key=lambda entry: entry[key]):
        found.setdefault(entry[key], []).append(entry)
    return found


def _heat(entry: dict[str, Any]) -> Html:
    above = (entry["accuracy"] - entry["chance"]) / max(1e-9, 1 - entry["chance"])
    return Html(
        f'<span class="heat" style="--heat:{max(0.0, min(1.0, above)):.2f}">{100 * entry["accuracy"]:.0f}</span>'
    )
