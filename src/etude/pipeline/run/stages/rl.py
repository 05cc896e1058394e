"""Stage rl: asynchronous reinforcement learning from the SFT checkpoint on the training tasks: exercises, or a folder's."""

from __future__ import annotations

from pathlib import Path

from etude.learn.model.transformers_backend.config import describe_implementation
from etude.pipeline.run.harder_tasks import harder_for
from etude.pipeline.run.practice import practice
from etude.pipeline.run.rubric_judge import rubric_judge
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.pretraining import CHECKPOINT
from etude.rl.observer import EventLogObserver
from etude.rl.run import run_rl
from etude.rl.run_context import RunContext
from etude.tasks.registry import graders_with


def run(context: Context) -> None:
    """Leaves what `rl.run` says: `checkpoint/`, `summary.json`, finished groups, ledger and weights."""
    recipe, found = context.recipe, practice(context.recipe)
    impl = recipe.model.impl
    context.log.note(context.stage, describe_implementation(sft_checkpoint(context), impl))
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
            harder=harder,
            impl=impl,
            graders=graders_with(recipe.tasks.plugins),
            judge=rubric_judge(recipe.rl.rewards, recipe.rl.attempt, context.folder),
        )
    )


def sft_checkpoint(context: Context) -> Path:
    """Where RL starts: the checkpoint that the recipe names, else the run's own."""
    named = context.recipe.run.sft_checkpoint
    return Path(named) if named else context.of("sft") / CHECKPOINT
