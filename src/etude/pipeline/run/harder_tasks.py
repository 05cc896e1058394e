"""Where a run's harder tasks come from: the ladder of exercise levels, or the folder that it trains on and the tasks generated from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etude.pipeline.recipe.recipe import Recipe
from etude.rl.observer import RunObserver
from etude.sandbox.protocol import SandboxPool
from etude.tasks.generate.generator import ProofContext
from etude.tasks.generate.harder_tasks.background import GrowingTaskSource, HarderTaskGenerator
from etude.tasks.generate.harder_tasks.builder import HarderTaskBuilder
from etude.tasks.generate.harder_tasks.selection import HarderTaskSelector
from etude.tasks.generate.harder_tasks.variants import ExerciseVariants, FolderVariants, HarderVariants, sized_task
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.source import FolderTaskSource
from etude.tasks.task import TaskSource

MADE = "harder"  # in the stage's folder: a folder of tasks


class ServedHarderTasks:
    """`rl.harder_tasks.HarderTasks`: a selector, and a generator of what it lacks if there is one."""

    def __init__(self, selector: HarderTaskSelector, generator: HarderTaskGenerator | None) -> None:
        self._selector, self._generator = selector, generator

    def serve(self, group: int, scheduled: str) -> str:
        task = self._selector.serve(group, scheduled)
        if self._generator is not None:
            self._generator.poll()
        return task

    def record_scores(self, group: int, scores: Sequence[float]) -> None:
        self._selector.record_scores(group, scores)

    def figures(self, groups: Mapping[int, str]) -> dict[str, float]:
        served = self._selector.served
        harder = [served.get(group, scheduled) != scheduled for group, scheduled in groups.items()]
        made = {"harder_made": float(self._generator.made)} if self._generator else {}
        return {"harder_groups": sum(harder) / len(harder), **made}

    async def close(self) -> None:
        if self._generator is not None:
            await self._generator.close()


@dataclass(frozen=True)
class HarderTaskServices:
    """`rl.harder_tasks.HarderTaskOpener`. `deepen` None: nothing can be made."""

    source: TaskSource
    siblings: HarderVariants
    deepen: Callable[[SandboxPool], HarderTaskBuilder] | None = None

    def open(
        self, journal: Path, scheduled: Sequence[str], above: float, pool: SandboxPool, observer: RunObserver
    ) -> ServedHarderTasks:
        """Only a folder's tasks are made more of: exercises have a ladder of levels."""
        selector = HarderTaskSelector(self.siblings, journal, scheduled, above)
        if self.deepen is None or not isinstance(self.siblings, FolderVariants):
            return ServedHarderTasks(selector, None)
        generator = HarderTaskGenerator(selector, self.siblings, self.deepen(pool), observer.note)
        return ServedHarderTasks(selector, generator)


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
