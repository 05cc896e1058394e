"""`etude tasks export ID... --out DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.cli.tasks.source import From, RecipeName, task_of


def export(
    task_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Tasks to export.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the Harbor directories go.")],
    folder: From = None,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Write tasks as Harbor directories, which other harnesses run too."""
    from etude.tasks.harbor import write_task

    tasks = [task_of(task_id, folder, recipe, overrides) for task_id in task_ids]
    folders = [write_task(task, out / task.id.replace("/", "-")) for task in tasks]
    return Answer({"exported": [str(f) for f in folders]}, "\n".join(str(f) for f in folders))
