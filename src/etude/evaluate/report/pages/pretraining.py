"""Pretraining phase after phase: loss, learning rate, gradient norm, the set that watches for forgetting, what was skipped."""

from __future__ import annotations

from html import escape
from typing import Any

from etude.evaluate.report.charts import Curves, chart
from etude.evaluate.report.knowledge import PHASES
from etude.evaluate.report.plot import Mark, PlotLine, line_chart
from etude.evaluate.report.table import cell, table

DRAFTED = ("mtp", "long", "sft")  # stages that train draft layers


def pretraining(report: dict[str, Any], curves: Curves) -> list[str]:
    """Table and charts; nothing unless the run has a phase after the base, for then `Learning curves` says it all."""
    if not any(phase in report or phase in curves for phase in PHASES[1:]):
        return []
    drawn = [
        chart(
            "Loss, phase after phase",
            _one_after_another(curves, ("mean_loss", "loss"), "loss (log scale)", log_y=True),
            "Each phase starts where the one before it ended; documents differ, so a step between phases is no setback.",
        ),
        chart("Learning rate", _one_after_another(curves, ("lr_factor",), "share of the phase's rate")),
        chart("Gradient norm before clipping", _one_after_another(curves, ("grad_norm",), "(log scale)", log_y=True)),
        chart("Regression set", regression(report, curves), "Held-out short documents: a phase stops when they worsen past its bar."),
        chart("Draft layers", drafts(curves), "Divergence from the main head's distribution, nats a token."),
    ]  # fmt: skip
    return [phases(report, curves), _stopped(report), f'<div class="charts">{"".join(drawn)}</div>']


def phases(report: dict[str, Any], curves: Curves) -> str:
    """One row a phase; skipped steps as its events have them."""
    rows = []
    for phase in PHASES:
        if (found := report.get(phase)) is None:
            continue
        held = found.get("heldout_bits_per_byte")
        rows.append(
            [
                phase,
                cell(found["steps"]),
                cell(found["tokens"]),
                "" if not found["steps"] else f"{found['loss']:.3f}",
                "" if held is None else f"{held:.4f}",
                str(len(curves.get(phase, {}).get("skipped", []))),
            ]
        )
    return table(["phase", "steps", "tokens", "loss at its end", "held-out bits a byte", "steps skipped"], rows)


def regression(report: dict[str, Any], curves: Curves) -> str:
    """Bits a byte of the regression set by the phases' own steps: as a finished phase tells, or as a running one has measured."""
    points = {
        phase: report.get(phase, {}).get("regression") or curves.get(phase, {}).get("regression_bits_per_byte", [])
        for phase in PHASES
    }
    lines = [
        PlotLine(phase, [step for step, _ in found], [bits for _, bits in found], hue=place)
        for place, (phase, found) in enumerate(points.items())
    ]
    return line_chart(lines, x_title="step of the phase", y_title="bits a byte")


def drafts(curves: Curves) -> str:
    """The draft layers' loss in every stage that trains them."""
    lines = []
    for stage in DRAFTED:
        found = curves.get(stage, {}).get("draft_loss", [])
        if stage == "mtp" and not found:  # the stage trains nothing else, so its loss is theirs
            found = curves.get(stage, {}).get("mean_loss") or curves.get(stage, {}).get("loss", [])
        lines.append(PlotLine(stage, [step + 1 for step, _ in found], [value for _, value in found]))
    return line_chart(lines, x_title="step of the stage (log scale)", y_title="nats a token", log_x=True, y_zero=True)


def _one_after_another(curves: Curves, names: tuple[str, ...], y_title: str, *, log_y: bool = False) -> str:
    """The first of `names` that a phase recorded, by steps counted through all phases."""
    lines, marks, before = [], [], 0
    for place, phase in enumerate(PHASES):
        recorded = curves.get(phase, {})
        found = next((recorded[name] for name in names if recorded.get(name)), [])
        if not found:
            continue
        if before:
            marks.append(Mark(before, phase))
        lines.append(PlotLine(phase, [before + step for step, _ in found], [value for _, value in found], hue=place))
        before += found[-1][0]
    title = "optimizer step, counted through the phases"
    return line_chart(lines, x_title=title, y_title=y_title, log_y=log_y, y_zero=not log_y, marks=marks)


def _stopped(report: dict[str, Any]) -> str:
    found = [(phase, report[phase]["stopped"]) for phase in PHASES if report.get(phase, {}).get("stopped")]
    return "".join(f'<p class="bad">{phase} stopped early: {escape(reason)}</p>' for phase, reason in found)
