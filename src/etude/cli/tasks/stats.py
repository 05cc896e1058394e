"""`etude tasks stats DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json


def stats(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of tasks.")],
    json: Json = False,
) -> Answer:
    """Summarise a folder of tasks: number of each kind, length of the prompts, size of the changes."""
    from etude.tasks.stats import render_stats
    from etude.tasks.stats import stats as counted
    from etude.tasks.store.opened import open_tasks

    document = counted(open_tasks(folder).rows.values())
    return Answer(document, render_stats(document))
