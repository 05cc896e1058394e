"""Where a run's harder tasks come from: the ladder of exercise levels, or the folder that it trains on and what is made beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etude.pipeline.recipe.recipe import Recipe
from etude.sandbox.protocol import SandboxPool
from etude.tasks.generate.generator import Bench
from etude.tasks.generate.service.deepening import Deepening
from etude.tasks.generate.service.growing import Grown
from etude.tasks.generate.service.siblings import ExerciseSiblings, FolderSiblings, Siblings, sized
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.source import FolderSource
from etude.tasks.task import TaskSource

MADE = "harder"  # in the stage's folder: a folder of tasks


@dataclass(frozen=True)
class Harder:
    """`deepen` None: nothing can be made."""

    source: TaskSource
    siblings: Siblings
    deepen: Callable[[SandboxPool], Deepening] | None = None


def harder_for(recipe: Recipe, source: TaskSource, folder: Path) -> Harder:
    """Siblings are of the training split alone, and what is made is of its projects (promise 10). Raises TaskError."""
    if not isinstance(source, FolderSource):
        return Harder(source, ExerciseSiblings())
    siblings = FolderSiblings(map(sized, source.rows("train")))
    kept = source.tasks
    if recipe.rl.harder_above is None or not recipe.rl.harder_candidates or not isinstance(kept, TaskFolder):
        return Harder(source, siblings)  # Harbor directories hold no installed project to make more of
    place = TaskFolder(folder / MADE, make=True)
    for row in place.rows.values():
        siblings.add(sized(row))
    deepen = partial(_deepening, kept, place, recipe)
    return Harder(Grown(source, place), siblings, deepen)


def _deepening(tasks: TaskFolder, place: TaskFolder, recipe: Recipe, pool: SandboxPool) -> Deepening:
    return Deepening(tasks, place, Bench(pool), most=recipe.rl.harder_candidates, seed=recipe.rl.seed)
