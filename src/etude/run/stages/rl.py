"""Stage rl: asynchronous reinforcement learning from the SFT checkpoint on the training exercises."""

from __future__ import annotations

from pathlib import Path

from etude.factory.exercises.source import ExerciseSource
from etude.factory.service.siblings import ExerciseSiblings
from etude.recipe.recipe import Recipe
from etude.rl.run import run_rl
from etude.run.stage import Context
from etude.run.stages.pretraining import CHECKPOINT


def run(context: Context) -> None:
    """Leaves what `rl.run` says: `checkpoint/`, `summary.json`, finished groups, ledger and weights."""
    recipe = context.recipe
    run_rl(
        recipe.rl,
        checkpoint=sft_checkpoint(context),
        folder=context.folder,
        source=practice(recipe),
        harness=recipe.harness,
        engine=recipe.engine,
        sandbox=recipe.sandbox,
        log=context.log,
        fleet=recipe.fleet,
        siblings=ExerciseSiblings(),
    )


def practice(recipe: Recipe) -> ExerciseSource:
    """The training tasks that RL draws from: the front half. Demonstrations are taken from the end (factory.sessions)."""
    exercises = recipe.exercises
    return ExerciseSource(exercises.model_copy(update={"train_tasks": max(1, exercises.train_tasks // 2)}))


def sft_checkpoint(context: Context) -> Path:
    """Where RL starts: the checkpoint that the recipe names, else the run's own."""
    named = context.recipe.run.sft_checkpoint
    return Path(named) if named else context.of("sft") / CHECKPOINT
