"""Stage rewarded_sft, a control: what RL's attempts would have bought without reinforcement learning.

The SFT checkpoint makes as many attempts at the same tasks as RL made, and is then fine-tuned on those that solved them (of its
own making alone), for as much CPU time as RL's trainer worked, with the trainer's optimizer and learning rate. `run.control_share`
below 1 gives it less of both, for recipes that only show that it runs; the summary says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict

from etude.chat.nano import NanoRenderer
from etude.engine.policy import EnginePolicy
from etude.factory.exercises.source import ExerciseSource
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.rl.schedule import task_list
from etude.rl.store import GroupStore
from etude.rollout.attempt import Attempt, Setup
from etude.rollout.batch import Job, run_batch
from etude.rollout.retry import InfraFault
from etude.run.stage import Context, StageError
from etude.run.stages.base import CHECKPOINT
from etude.run.stages.rl import sft_checkpoint
from etude.sandbox.pool import open_pool
from etude.tasks.registry import GRADERS
from etude.trace.segment import Rollout, Segment
from etude.train.settings import LoopSettings, OptimizerSettings, ScheduleSettings, SftSettings
from etude.train.sft import run_sft

SEED_STRIDE = 7919  # apart from RL's own seeds by the seed of the run alone: other draws from the same distribution
SOLVED = 1.0


def run(context: Context) -> None:
    """Leaves its attempts in `groups/`, `summary.json`, and, if some attempt solved its task, `checkpoint/`."""
    start, store = sft_checkpoint(context), GroupStore(context.folder / "groups")
    tasks = task_list(context.recipe.rl, ExerciseSource(context.recipe.exercises)).task_ids
    tasks = tasks[: max(1, round(len(tasks) * context.recipe.run.control_share))]
    asyncio.run(_sample(context, tasks, store))
    rollouts = [rollout for group in range(len(tasks)) for rollout in store.load(group)]
    taught = solved_segments(rollouts)
    solved = sum(rollout.rewards["outcome"] >= SOLVED for rollout in rollouts)
    facts = {"attempts": len(rollouts), "solved": solved, "share": context.recipe.run.control_share}
    if not taught:
        context.log.note(
            context.stage, f"none of {len(rollouts)} attempts solved its task: there is nothing to fine-tune on"
        )
        return context.summarize(facts | {"segments": 0, "steps": 0, "tokens": 0})
    model = load_checkpoint(start)
    result = run_sft(_settings(context), model, taught, context.folder, context.log, stage=context.stage)
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=start)
    context.summarize(facts | {"segments": len(taught)} | asdict(result))


def solved_segments(rollouts: Sequence[Rollout]) -> list[Segment]:
    """Segments of every rollout that solved its task."""
    return [segment for r in rollouts if r.rewards["outcome"] >= SOLVED for segment in r.segments]


async def _sample(context: Context, tasks: Sequence[str], store: GroupStore) -> None:
    """Every task's group of attempts that is not stored yet."""
    recipe, start = context.recipe, sft_checkpoint(context)
    pool = await open_pool(recipe.sandbox)
    engine = recipe.engine.model_copy(
        update={
            "threads": 1,
            "max_slots": max(recipe.engine.max_slots, recipe.rl.slots),
        }  # sandboxes need the other core
    )
    policy = EnginePolicy.start(load_checkpoint(start), engine, name=context.stage)
    try:
        setup = Setup(policy, pool, GRADERS, recipe.harness, NanoRenderer.load(start), recipe.rl.attempt)
        await Sampling(context, tasks, store, setup).run()
    finally:
        policy.close()
        await pool.close()


class Sampling:
    """Attempts of many groups at once; a group is stored when its last attempt is in."""

    def __init__(self, context: Context, tasks: Sequence[str], store: GroupStore, setup: Setup) -> None:
        self.context, self.tasks, self.store, self.setup = context, tasks, store, setup
        self.size = context.recipe.rl.group_size
        self.found: dict[int, list[Rollout]] = {}

    async def run(self) -> None:
        """Raises StageError if infra faults outlived their retries; what is stored stays."""
        source = ExerciseSource(self.context.recipe.exercises)
        missing = [group for group in range(len(self.tasks)) if not self.store.path(group).is_file()]
        jobs = [
            Job(source.task(self.tasks[g]), f"{self.tasks[g]}#{g}.{m}", self._seed(g, m), g)
            for g in missing
            for m in range(self.size)
        ]
        if not jobs:
            return
        batch = await run_batch(jobs, self.setup, concurrency=self.context.recipe.rl.slots, progress=self._take)
        if batch.faults:
            last = list(batch.faults.values())[-1]
            raise StageError(
                f"{len(batch.faults)} of {len(jobs)} attempts met infra faults; the last: {last}. Run again"
            )

    def _take(self, done: int, total: int, last: Attempt | InfraFault) -> None:
        if isinstance(last, Attempt):
            group = self.found.setdefault(last.rollout.group, [])
            group.append(last.rollout)
            if len(group) == self.size:
                self.store.save(last.rollout.group, sorted(group, key=lambda rollout: rollout.id))
                del self.found[last.rollout.group]
        self.context.log.progress(self.context.stage, done, total)

    def _seed(self, group: int, member: int) -> int:
        place = group * self.size + member
        return ((self.context.recipe.rl.seed + 1) << 41) + place * SEED_STRIDE


def _settings(context: Context) -> SftSettings:
    recipe = context.recipe
    curve = json.loads((context.of("rl") / "summary.json").read_text())["curve"]
    budget_s = recipe.run.control_share * sum(point["train_s"] for point in curve)  # one thread: wall is CPU time
    limits = recipe.sft.loop.model_dump() | {"steps": None, "budget_core_s": budget_s, "threads": 1}
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
