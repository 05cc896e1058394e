"""`etude report` without a verb: rebuild a run's report from its files (promise 11), or show the run live on loopback."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.status.completion import complete_run_path


def report(
    run: Annotated[
        Path, typer.Argument(metavar="[DIR]", autocompletion=complete_run_path, help="The run directory.")
    ] = Path("runs/laptop"),
    serve: Annotated[bool, typer.Option("--serve", help="Serve the board on loopback and follow the run.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the board; 0 picks a free one.")] = 0,
    json: Json = False,
) -> Answer:
    """Rebuild report.json and report.html from what a run's stages wrote, finished or not; or serve the live board."""
    if serve:
        return _serve(run, port)
    if (run / "conditions.json").is_file() and not (run / "recipe.toml").is_file():
        return _bench(run)
    from etude.evaluate.report.write import write_report
    from etude.pipeline.recipe.read import read_recipe

    own = run / "recipe.toml"
    # A folder without a recipe is no run, and write_report says so.
    document = write_report(run, read_recipe([own] if own.is_file() else []).report)
    return Answer(document, f"report: {run / 'report.html'}")


def _serve(run: Path, port: int) -> Answer:
    """Until Ctrl-C."""
    from etude.evaluate.report.board.server import Board

    board = Board(run, port)
    print(f"board of {run}: {board.url} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    with suppress(KeyboardInterrupt):  # the way to end it
        board.serve()
    return Answer({"url": board.url}, "")


def _bench(run: Path) -> Answer:
    """Of `etude bench run`: the same door."""
    from etude.evaluate.bench.run_report import write_report
    from etude.evaluate.bench.runs.folder import RunFolder
    from etude.evaluate.report.write import write_page

    document = write_report(RunFolder(run))
    return Answer(document, f"report: {write_page(run)}")
