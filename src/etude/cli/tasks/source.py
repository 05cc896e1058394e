"""Which tasks a verb means: a folder of tasks, or the exercises of a recipe where no folder is named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

RecipeName = Annotated[str, typer.Option("--recipe", help="The recipe whose table `exercises` makes the tasks.")]
From = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="A folder of tasks. Default: the exercises of the recipe.")
]


class NoTask(Exception):
    """There is no such level or task."""


def exercises(recipe: str, overrides: list[str] | None) -> Any:
    from etude.pipeline.recipe.read import find_recipe, read_recipe
    from etude.tasks.generate.exercises.source import ExerciseSource

    return ExerciseSource(read_recipe([find_recipe(recipe)], overrides or []).exercises)


def task_of(task_id: str, folder: Path | None, recipe: str, overrides: list[str] | None) -> Any:
    """Raises NoTask, TaskError."""
    from etude.tasks.store.opened import open_tasks

    source = exercises(recipe, overrides) if folder is None else open_tasks(folder)
    try:
        return source.task(task_id)
    except KeyError as error:
        raise NoTask(error.args[0]) from error
