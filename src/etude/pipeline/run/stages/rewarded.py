"""Stage rewarded_sft, a control: what RL's attempts would have bought without reinforcement learning.

The SFT checkpoint is fine-tuned on those of its own attempts that solved their tasks, for as much CPU time as RL's trainer took
(`run.control_share` of it), with the trainer's optimizer and learning rate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from etude.core.events.finite import loads
from etude.core.trace.segment import Rollout, Segment
from etude.learn.model.card import Training
from etude.learn.model.checkpoint import check_companions, save_checkpoint
from etude.learn.train.settings import LoopSettings, OptimizerSettings, ScheduleSettings, SftSettings
from etude.learn.train.sft import run_sft
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.attempts import GROUPS
from etude.pipeline.run.stages.loading import load_model
from etude.pipeline.run.stages.pretraining import CHECKPOINT
from etude.pipeline.run.stages.rl import sft_checkpoint
from etude.rl.store import GroupStore

SOLVED = 1.0


def run(context: Context) -> None:
    """Leaves `summary.json` and, if some attempt solved its task, `checkpoint/`."""
    start, store = sft_checkpoint(context), GroupStore(context.of("attempts") / GROUPS)
    facts = json.loads((context.of("attempts") / "summary.json").read_text())
    taught = solved_segments(rollout for group in store.groups() for rollout in store.load(group))
    if not taught:
        context.log.note(
            context.stage, f"none of {facts['attempts']} attempts solved its task: there is nothing to learn from"
        )
        return context.summarize(facts | {"segments": 0, "steps": 0, "tokens": 0})
    model = load_model(context, start)
    check_companions(model.config, start)
    result = run_sft(_settings(context), model, taught, context.folder, context.log, stage=context.stage)
    trained = Training(context.stage, f"{len(taught):,} segments of attempts that solved their tasks")
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=start, trained=trained)
    context.summarize(facts | {"segments": len(taught)} | asdict(result))


def solved_segments(rollouts: Iterable[Rollout]) -> list[Segment]:
    """Segments of every rollout that solved its task."""
    return [segment for r in rollouts if r.rewards["outcome"] >= SOLVED for segment in r.segments]


def _settings(context: Context) -> SftSettings:
    recipe = context.recipe
    curve = loads((context.of("rl") / "summary.json").read_text())["curve"]
    budget_s = recipe.run.control_share * sum(point["train_cpu_s"] for point in curve)
    limits = recipe.sft.loop.model_dump() | {"steps": None, "budget_core_s": budget_s, "threads": recipe.rl.threads}
    return recipe.sft.model_copy(
        update={
            "loop": LoopSettings(**limits),
            "epochs": 1000.0,  # as many as fit
            # The trainer's own optimizer: restarting at SFT's peak rate would undo the checkpoint it starts from.
            "optimizer": OptimizerSettings(matrices="adamw", low_rank="adamw", adam_lr=recipe.rl.update.lr),
            "schedule": ScheduleSettings(shape="wsd"),
            "observation_weight": 0.0,
        }
    )
