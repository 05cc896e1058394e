"""`etude tasks list DIR --summary`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.former import print_present_spelling
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.tasks.task_row import TaskRow


def former_stats(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of tasks.")],
    json: Json = False,
) -> Answer:
    """Summarise a folder of tasks: number of each kind, length of the prompts, size of the changes."""
    from etude.tasks.store.opened import open_tasks

    print_present_spelling("tasks stats", "tasks list --summary")
    return summary_of(open_tasks(folder).rows.values())


def summary_of(rows: Iterable[TaskRow]) -> Answer:
    from etude.tasks.stats import render_stats, stats

    document = stats(rows)
    return Answer(document, render_stats(document))
