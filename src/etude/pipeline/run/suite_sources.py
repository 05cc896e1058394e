"""Where the tasks of `etude bench make --from-tasks` come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.suites.from_tasks import Choice
from etude.pipeline.recipe.recipe import Recipe
from etude.tasks.errors import TaskError
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.real.source import RealPackages
from etude.tasks.registry import GRADERS
from etude.tasks.running.pin import default_cache
from etude.tasks.store.opened import open_tasks
from etude.tasks.task import Grader, Task


@dataclass(frozen=True)
class SuiteSource:
    """Tasks by id, and who grades them."""

    ids: Sequence[str]
    make: Callable[[str], Task]
    graders: dict[str, Grader]


def source_of(named: str, recipe: Recipe, choice: Choice) -> SuiteSource:
    """`exercises`, `real` or a folder of tasks: one that was made here, or Harbor directories. Raises SuiteError."""
    split = choice.split or "heldout"
    if named == "exercises":
        source = ExerciseSource(recipe.exercises)
        try:
            return SuiteSource(source.ids(split, level=choice.level), source.task, dict(GRADERS))
        except ValueError as error:
            raise SuiteError(str(error)) from error
    if named == "real":
        packages = RealPackages(default_cache())
        return SuiteSource(packages.ids(split, level=choice.level), packages.task, dict(GRADERS))
    folder = Path(named)
    if not folder.is_dir():
        raise SuiteError(
            f"{named}: there is no such folder; give a folder of tasks (`etude tasks make --out {named}`), one of Harbor "
            "directories, exercises, or real"
        )
    try:
        tasks = open_tasks(folder)
    except TaskError as error:
        raise SuiteError(str(error)) from error
    return SuiteSource([*tasks.ids()], tasks.task, dict(GRADERS))
