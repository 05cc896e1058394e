"""Stage rl: asynchronous reinforcement learning from the SFT checkpoint on the training tasks: exercises, or a folder's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.practice import practice
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.pretraining import CHECKPOINT
from etude.rl.observer import EventLogObserver
from etude.rl.run import run_rl
from etude.rl.run_context import RunContext
from etude.sandbox.protocol import SandboxPool
from etude.tasks.generate.generator import ProofContext
from etude.tasks.generate.harder_tasks.background import GrowingTaskSource
from etude.tasks.generate.harder_tasks.builder import HarderTaskBuilder
from etude.tasks.generate.harder_tasks.variants import ExerciseVariants, FolderVariants, HarderVariants, sized_task
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.source import FolderTaskSource
from etude.tasks.task import TaskSource

# Where a run's harder tasks come from: the ladder of exercise levels, or the folder that it trains on and the tasks
# generated from it.


MADE = "harder"  # in the stage's folder: a folder of tasks


@dataclass(frozen=True)
class HarderTaskServices:
    """`deepen` None: nothing can be made."""

    source: TaskSource
    siblings: HarderVariants
    deepen: Callable[[SandboxPool], HarderTaskBuilder] | None = None


def harder_for(recipe: Recipe, source: TaskSource, folder: Path) -> HarderTaskServices:
    """Siblings are of the training split alone, and what is made is of its projects (promise 10). Raises TaskError."""
    if not isinstance(source, FolderTaskSource):
        return HarderTaskServices(source, ExerciseVariants())
    siblings = FolderVariants(map(sized_task, source.rows("train")))
    kept = source.tasks
    if recipe.rl.harder_above is None or not recipe.rl.harder_candidates or not isinstance(kept, TaskFolder):
        return HarderTaskServices(source, siblings)  # Harbor directories hold no installed project to make more of
    place = TaskFolder(folder / MADE, make=True)
    for row in place.rows.values():
        siblings.add(sized_task(row))
    deepen = partial(_deepening, kept, place, recipe)
    return HarderTaskServices(GrowingTaskSource(source, place), siblings, deepen)


def _deepening(tasks: TaskFolder, place: TaskFolder, recipe: Recipe, pool: SandboxPool) -> HarderTaskBuilder:
    return HarderTaskBuilder(
        tasks, place, ProofContext(pool), max_candidates=recipe.rl.harder_candidates, seed=recipe.rl.seed
    )


def run(context: Context) -> None:
    """Leaves what `rl.run` says: `checkpoint/`, `summary.json`, finished groups, ledger and weights."""
    recipe, found = context.recipe, practice(context.recipe)
    harder = harder_for(recipe, found.source, context.folder)
    run_rl(
        RunContext(
            found.settings,
            sft_checkpoint(context),
            context.folder,
            harder.source,
            recipe.harness,
            recipe.engine,
            recipe.sandbox,
            EventLogObserver(context.log),
            fleet=recipe.fleet,
            cluster=recipe.cluster,
            siblings=harder.siblings,
            deepen=harder.deepen,
        )
    )


def sft_checkpoint(context: Context) -> Path:
    """Where RL starts: the checkpoint that the recipe names, else the run's own."""
    named = context.recipe.run.sft_checkpoint
    return Path(named) if named else context.of("sft") / CHECKPOINT
