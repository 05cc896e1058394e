"""`etude reload`: engines and trainer of a run in progress are replaced, one after the other, while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.status.completion import complete_run_path

Only = Annotated[
    Literal["engines", "trainer"] | None,
    typer.Option("--only", help="Replace these alone. Default: engines and trainer."),
]


def reload(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            autocompletion=complete_run_path,
            help="The run directory. Default: the one of runs/ in progress.",
        ),
    ] = None,
    set_: Overrides = None,
    only: Only = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")] = True,
    json: Json = False,
) -> Answer:
    """Replace engines and trainer of a run while it goes on: for changed code, or with --set engine.max_batch=32 and its like.

    Nothing of the run is lost. The trainer is replaced after the step that it is at, with a checkpoint.
    """
    from etude.pipeline.run.reloading import in_progress, reload

    found = reload(run or in_progress(), list(set_ or []), only or "", wait)
    if found is None:
        return Answer({"asked": True}, "asked for; rl/reloads.jsonl will tell")
    return Answer(found.model_dump(), f"{only or 'engines and trainer'} replaced in {found.seconds:g} s")
