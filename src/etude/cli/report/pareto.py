"""`etude report pareto`: score against cost, with intervals, as an SVG for a paper and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

_Run = Annotated[Path, typer.Argument(metavar="DIR", help="A bench run's directory.")]
_Axis = Annotated[str, typer.Option("--axis", help="Cost axis: tokens, dollars, seconds or core_seconds.")]
_Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the plot.")]
_Best = Annotated[bool, typer.Option("--best-of", help="Plot the best of k attempts at k times the cost too.")]
_Theme = Annotated[
    Literal["auto", "light", "dark"],
    typer.Option("--theme", help="Colour theme; auto follows the reader's, light suits print."),
]


def pareto(
    run: _Run,
    axis: _Axis = "tokens",
    svg: _Svg = None,
    best_of: _Best = False,
    theme: _Theme = "auto",
    json: Json = False,
) -> Answer:
    """Plot the Pareto front of accuracy against cost. Reads the report.json of a bench run."""
    from dataclasses import asdict

    from etude.evaluate.report.pareto.draw import draw
    from etude.evaluate.report.pareto.points import AXES, curves, heading, read_report
    from etude.evaluate.report.query.formats import table

    report = read_report(run)
    found = curves(report, axis)
    if svg is not None:
        svg.parent.mkdir(parents=True, exist_ok=True)
        svg.write_text(draw(found, axis, title=heading(report), best_of=best_of, theme=theme), encoding="utf-8")
    points = [point for own in found.values() for point in own]
    rows = [
        {
            "policy": p.policy,
            "effort": p.effort,
            "score": round(p.score, 1),
            "95%": f"[{p.score_ci95[0]:.1f}, {p.score_ci95[1]:.1f}]",
            AXES[axis]: p.cost,
            "of it 95%": f"[{p.cost_ci95[0]:.4g}, {p.cost_ci95[1]:.4g}]",
            "front": "front" if p.on_front else "",
            "resamples": "" if p.share is None else f"{p.share:.0%}",
        }
        for p in sorted(points, key=lambda p: -p.score)
    ]
    text = "\n".join([*table(list(rows[0]), rows), *([f"plot: {svg}"] if svg else [])])
    return Answer({"axis": axis, "points": [asdict(p) for p in points], "svg": str(svg) if svg else None}, text)
