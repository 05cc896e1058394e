"""Stage rl: asynchronous reinforcement learning from the SFT checkpoint on the training tasks: exercises, or a folder's."""

from __future__ import annotations

from pathlib import Path

from etude.pipeline.run.harder import harder_for
from etude.pipeline.run.practice import practice
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.pretraining import CHECKPOINT
from etude.rl.run import run_rl


def run(context: Context) -> None:
    """Leaves what `rl.run` says: `checkpoint/`, `summary.json`, finished groups, ledger and weights."""
    recipe, found = context.recipe, practice(context.recipe)
    harder = harder_for(recipe, found.source, context.folder)
    run_rl(
        found.settings,
        checkpoint=sft_checkpoint(context),
        folder=context.folder,
        source=harder.source,
        harness=recipe.harness,
        engine=recipe.engine,
        sandbox=recipe.sandbox,
        log=context.log,
        fleet=recipe.fleet,
        cluster=recipe.cluster,
        siblings=harder.siblings,
        deepen=harder.deepen,
    )


def sft_checkpoint(context: Context) -> Path:
    """Where RL starts: the checkpoint that the recipe names, else the run's own."""
    named = context.recipe.run.sft_checkpoint
    return Path(named) if named else context.of("sft") / CHECKPOINT
