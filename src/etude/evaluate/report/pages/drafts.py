"""Draft layers: how often their guesses are what the model says, and what that saves."""

from __future__ import annotations

from typing import Any

from etude.evaluate.report.charts import chart
from etude.evaluate.report.pages.perplexity import middle
from etude.evaluate.report.plot import PlotLine, line_chart
from etude.evaluate.report.table import bar, cell, table

SPEEDUP = 1.2  # what the project asks of the laptop recipe at one session at a time


def drafts(report: dict[str, Any]) -> list[str]:
    """Acceptance and speed-up; nothing where no draft layer was probed."""
    found = report.get("mtp", {})
    if not {"acceptance", "speedup"} & found.keys():
        return []
    drawn = [
        chart("Drafts accepted, by depth", _by_depth(found.get("acceptance", {})), "Of the drafts made at each depth."),
        chart("Drafts accepted, by position", _by_position(found.get("by_position", []))),
    ]
    return [f'<div class="charts">{"".join(drawn)}</div>', _speedup(found)]


def _by_depth(acceptance: dict[str, list[float]]) -> str:
    lines = [
        PlotLine(kind, [n + 1 for n in range(len(of))], [100 * share for share in of])
        for kind, of in acceptance.items()
    ]
    return line_chart(lines, x_title="tokens ahead of the main head", y_title="accepted, %", y_zero=True)


def _by_position(found: list[list[float]]) -> str:
    line = PlotLine("accepted", [middle(start, stop) for start, stop, _ in found], [100 * share for *_, share in found])
    title = "position in the session, tokens (log scale)"
    return line_chart([line], x_title=title, y_title="accepted, %", log_x=True, y_zero=True)


def _speedup(found: dict[str, Any]) -> str:
    """Decoding with drafts compared with decoding without, at each batch; the requirement holds for batch 1."""
    measured = found.get("speedup", {})
    rows: list[list[str]] = []
    for batch, ratio in measured.get("batch", {}).items():
        asked = bar(f"at least {SPEEDUP:g}", ratio >= SPEEDUP) if batch == "1" else ""
        rows.append([f"speed-up, {batch} at a time", f"{ratio:.2f} x", asked])
    if "identical" in measured:
        rows.append(["same tokens as without drafts", cell(measured["identical"]), bar("yes", measured["identical"])])
    if "draft_tokens" in measured:
        rows.append(["tokens drafted at a time", cell(measured["draft_tokens"]), ""])
    if "parameters" in found:
        rows.append(["parameters of the draft layers", cell(found["parameters"]), ""])
    return table(["speculative decoding", "measured", "asked for"], rows) if rows else ""
