"""Which tasks a run trains on and which it is measured by: the exercises, or the folder of tasks that the recipe names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from etude.evaluate.bench.settings import BenchSettings
from etude.evaluate.bench.suite import choose_tasks
from etude.pipeline.recipe.recipe import Recipe
from etude.rl.settings import RlSettings
from etude.tasks.errors import TaskError
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.mix.weights import read_weights
from etude.tasks.registry import GRADERS, no_grader
from etude.tasks.store.opened import open_tasks
from etude.tasks.store.source import FolderTaskSource
from etude.tasks.task import Task, TaskSource


@dataclass(frozen=True)
class TrainingTasks:
    """`settings` are RL's, with the shares by which this source is drawn from."""

    source: TaskSource
    settings: RlSettings


def folder_of(recipe: Recipe) -> FolderTaskSource | None:
    """None where the recipe names none. Raises TaskError that names the key."""
    task_settings = recipe.tasks
    if not task_settings.folder:
        if task_settings.mix:
            raise TaskError(
                f"tasks.mix = {task_settings.mix!r} weighs the tasks of a folder, and the recipe names none: set tasks.folder"
            )
        return None
    try:
        weights = read_weights(Path(task_settings.mix)) if task_settings.mix else {}
    except TaskError as error:
        raise TaskError(f"tasks.mix = {task_settings.mix!r}: {error}") from error
    try:
        return FolderTaskSource(open_tasks(Path(task_settings.folder)), weights)
    except TaskError as error:
        raise TaskError(f"tasks.folder = {task_settings.folder!r}: {error}") from error


def practice(recipe: Recipe) -> TrainingTasks:
    """What RL draws from. Of the exercises the front half: demonstrations are taken from the end (factory.sessions). Raises TaskError."""
    if (folder := folder_of(recipe)) is not None:
        levels = folder.levels("train")
        wanted, there = recipe.rl.steps * recipe.rl.groups_per_step, len(folder.ids("train"))
        if wanted > there:
            raise TaskError(
                f"tasks.folder = {recipe.tasks.folder!r} holds {there} training tasks, and a single epoch of rl.steps = {recipe.rl.steps} with "
                f"rl.groups_per_step = {recipe.rl.groups_per_step} takes {wanted}: lower one of them, or make more tasks"
            )
        return TrainingTasks(folder, recipe.rl.model_copy(update={"levels": levels if recipe.tasks.mix else {}}))
    exercises = recipe.exercises
    half = exercises.model_copy(update={"train_tasks": max(1, exercises.train_tasks // 2)})
    return TrainingTasks(ExerciseSource(half), recipe.rl)


def require_graders(recipe: Recipe, tasks: Iterable[Task]) -> None:
    """Raises TaskError for a task whose grader there is not, or that names one by import path which the recipe does not allow."""
    known = [*GRADERS, *recipe.tasks.plugins]
    for task in tasks:
        if task.grader not in known:
            raise TaskError(f"tasks.folder = {recipe.tasks.folder!r}: task {task.id}: {no_grader(task.grader, known)}")


@dataclass(frozen=True)
class BenchTasks:
    """The tasks of the bench, and how its averages weigh the levels."""

    tasks: list[Task]
    mix: Mapping[str, float]
    folder: FolderTaskSource | None = None


def exam(recipe: Recipe) -> BenchTasks:
    """Never of the training split: `bench.split` knows but the other two. Raises TaskError, ValueError that names the setting."""
    settings, folder = recipe.bench, folder_of(recipe)
    if folder is None:
        mix = {str(level): weight for level, weight in recipe.exercises.levels.items()}
        source: TaskSource = ExerciseSource(recipe.exercises)
        tasks = choose_tasks(source, mix, settings.tasks, settings.seed, settings.split, settings.minimum_tasks(LEVELS))
        return BenchTasks(tasks, mix)
    mix = {level: weight for level, weight in folder.levels(settings.split).items() if weight > 0}
    tasks = choose_tasks(
        folder, mix, _count(settings, folder), settings.seed, settings.split, _floors(settings, folder, mix)
    )
    return BenchTasks(tasks, mix, folder)


def _count(settings: BenchSettings, folder: FolderTaskSource) -> int:
    return min(settings.tasks, len(folder.ids(settings.split)))


def _floors(settings: BenchSettings, folder: FolderTaskSource, mix: Mapping[str, float]) -> dict[str, int]:
    """No more of a level than there are, and all floors together no more than are asked."""
    least = settings.minimum_tasks(mix)
    fair = max(1, _count(settings, folder) // len(mix))
    return {level: min(least[level], fair, len(folder.ids(settings.split, level=level))) for level in mix}
