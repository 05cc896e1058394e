"""Where the tasks of `etude bench make --from-tasks` come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.bench.suites.errors import SuiteError
from etude.bench.suites.from_tasks import Choice, tasks_under
from etude.factory.exercises.source import ExerciseSource
from etude.recipe.recipe import Recipe
from etude.tasks.real.grader import PytestGrader
from etude.tasks.real.source import RealPackages
from etude.tasks.registry import GRADERS
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Grader, Task


@dataclass(frozen=True)
class Source:
    """Tasks by id, and who grades them."""

    ids: Sequence[str]
    make: Callable[[str], Task]
    graders: dict[str, Grader]


def source_of(named: str, recipe: Recipe, choice: Choice) -> Source:
    """`exercises`, `real` or a folder of Harbor directories. Raises SuiteError."""
    split = choice.split or "heldout"
    if named == "exercises":
        source = ExerciseSource(recipe.exercises)
        try:
            return Source(source.ids(split, level=choice.level), source.task, dict(GRADERS))
        except ValueError as error:
            raise SuiteError(str(error)) from error
    if named == "real":
        packages = RealPackages(default_cache())
        return Source(packages.ids(split, level=choice.level), packages.task, _with_pytest())
    folder = Path(named)
    if not folder.is_dir():
        raise SuiteError(
            f"--from-tasks {named}: there is no such folder; give one of Harbor directories, exercises or real"
        )
    tasks: Mapping[str, Task] = {task.id: task for task in tasks_under(folder)}
    return Source(list(tasks), tasks.__getitem__, _with_pytest())


def _with_pytest() -> dict[str, Grader]:
    return {**GRADERS, "pytest": PytestGrader(default_cache())}
