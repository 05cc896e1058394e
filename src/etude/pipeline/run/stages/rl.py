"""Stage rl: asynchronous reinforcement learning from the SFT checkpoint on the training tasks: exercises, or a folder's."""

from __future__ import annotations

from pathlib import Path

from etude.learn.model.transformers_backend.config import describe_implementation
from etude.learn.train.settings import PolicyStepSettings
from etude.pipeline.run.harder_tasks import harder_for
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.memory_plan import fit_update
from etude.pipeline.run.plan import with_chosen_tokens
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
            found.settings.model_copy(update={"update": fitted_update(context)}),
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


def fitted_update(context: Context) -> PolicyStepSettings:
    """`rl.update` with numbers for "auto": those that this attempt has, which a resumed run needs for the same sums in the same order, else what the
    memory holds."""
    ledger = StageLedger(context.run / "ledger.jsonl")
    recipe = with_chosen_tokens(context.recipe, ledger, context.stage)
    planned = fit_update(recipe)
    if planned.chosen:
        context.log.note(context.stage, planned.why)
        ledger.choose(context.stage, planned.chosen)
    return planned.update


def sft_checkpoint(context: Context) -> Path:
    """Where RL starts: the checkpoint that the recipe names, else the run's own."""
    named = context.recipe.run.sft_checkpoint
    return Path(named) if named else context.of("sft") / CHECKPOINT
