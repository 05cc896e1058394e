"""`etude report` without a verb: rebuild a run's report from its files (promise 11)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json


def report(
    run: Annotated[Path, typer.Argument(metavar="[DIR]", help="The run directory.")] = Path("runs/laptop"),
    json: Json = False,
) -> Answer:
    """Rebuild report.json and report.html from what a run's stages wrote, finished or not."""
    from etude.recipe.read import read_recipe
    from etude.report.write import write_report

    own = run / "recipe.toml"
    # A folder without a recipe is no run, and write_report says so.
    document = write_report(run, read_recipe([own] if own.is_file() else []).report)
    return Answer(document, f"report: {run / 'report.html'}")
