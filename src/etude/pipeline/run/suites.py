"""Suites by name, built in or in a folder: the one door of the bench's verbs."""

from __future__ import annotations

from pathlib import Path

from etude.evaluate.bench.suite import choose_tasks
from etude.evaluate.bench.suites import builtin, targeted
from etude.evaluate.bench.suites.find import SHELF, read_suite
from etude.evaluate.bench.suites.suite import Suite
from etude.pipeline.recipe.recipe import Recipe
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.running.pin import default_cache

DEFAULT_EXERCISES = 24
FEWEST = 2  # tasks of a level


def open_suite(named: str, recipe: Recipe, *, tasks: int | None = None, shelf: Path = SHELF) -> Suite:
    """`exercises` (drawn from the recipe by its bench seed), `real`, `targeted-NAME`, or a folder. `tasks`: the most tasks of a built-in one.

    Raises UnknownSuite, SuiteError, PluginError, ValueError for fewer exercises than there are levels.
    """
    if named == builtin.EXERCISES.name:
        weights = {str(level): weight for level, weight in recipe.exercises.levels.items()}
        source = ExerciseSource(recipe.exercises)
        count, levels = tasks or DEFAULT_EXERCISES, sum(weight > 0 for weight in weights.values())
        # A level of one task tells no spread of its own; fewer than two of each is a trial run.
        floors = dict.fromkeys(weights, FEWEST if count >= FEWEST * levels else 1)
        return builtin.exercises(choose_tasks(source, weights, count, recipe.bench.seed, minimums=floors), weights)
    if named == builtin.REAL.name:
        return builtin.real(default_cache(), tasks)
    if named in targeted.names():
        return targeted.targeted_suite(named)
    return read_suite(named, shelf, plugins=recipe.tasks.plugins)
