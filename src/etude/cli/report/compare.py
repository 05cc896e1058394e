"""`etude report compare`: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

_A = Annotated[Path, typer.Argument(metavar="A", help="A run's or a bench run's directory: what was before.")]
_B = Annotated[Path, typer.Argument(metavar="B", help="Run to compare with; differences are B - A.")]
_Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the page, one self-contained HTML file.")
]
_Tasks = Annotated[
    int, typer.Option("--tasks", min=0, help="Tasks whose sessions are set side by side, furthest apart first.")
]


def compare(a: _A, b: _B, out: _Out = None, tasks: _Tasks = 12, json: Json = False) -> Answer:
    """Settings that differ, figures paired by task with intervals, curves over each other, sessions step by step."""
    from etude.evaluate.report.compare.document import compare as both
    from etude.evaluate.report.compare.page import page
    from etude.evaluate.report.compare.text import text

    found = both(a, b, tasks=tasks)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page(found), encoding="utf-8")
    written = f"\n\npage: {out}" if out else "\n\nA page with curves and sessions step by step: --out FILE"
    return Answer(found.to_json() | ({"page": str(out)} if out else {}), text(found) + written)
