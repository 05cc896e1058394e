"""Stage attempts: the SFT checkpoint at the very tasks that RL trains on, as often as RL; what the control rewarded_sft learns from.

`run.control_share` below 1 takes fewer of the tasks, for recipes that only show that the control runs; above 1 it takes others after them,
so that the control's core-seconds come up to RL's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from etude.agent.chat.load import load_renderer
from etude.agent.chat.renderer import Renderer
from etude.core.trace.segment import Rollout
from etude.learn.model.checkpoint import load_config
from etude.pipeline.run.practice import TrainingTasks, practice
from etude.pipeline.run.stage import Context, StageError
from etude.pipeline.run.stages.loading import open_policy
from etude.pipeline.run.stages.rl import sft_checkpoint
from etude.rl.observer import EventLogObserver
from etude.rl.preflight import Window, check_prompts, sample_of
from etude.rl.schedule import task_list
from etude.rl.store import GroupStore
from etude.rollout.attempt import Attempt, AttemptSetup
from etude.rollout.batch import AttemptJob, make_attempts
from etude.rollout.campaign import CampaignJob, NullCampaignObserver, run_campaign
from etude.rollout.code_search import code_search
from etude.rollout.retry import InfraFault
from etude.sandbox.fleet.open import open_sandboxes
from etude.tasks.registry import graders_with

GROUPS = "groups"  # inside the stage's folder
SEED_STRIDE = 7919  # apart from RL's own seeds by the seed of the run alone: other draws from the same distribution


def run(context: Context) -> None:
    """Leaves every group of attempts in `groups/`, and `summary.json`."""
    store = GroupStore(context.folder / GROUPS)
    found = practice(context.recipe)
    share = context.recipe.run.control_share
    tasks = control_tasks(found, share)
    asyncio.run(_sample(context, tasks, store))
    stored = [group for group in range(len(tasks)) if store.path(group).is_file()]
    scores = [rollout.rewards["outcome"] for group in stored for rollout in store.load(group)]
    if not scores:
        raise StageError("no task could be attempted: the notes of this stage say why")
    left_out = {"unreachable": len(tasks) - len(stored)} if len(stored) < len(tasks) else {}
    context.summarize({"attempts": len(scores), "pass_rate": sum(scores) / len(scores), "share": share} | left_out)


def control_tasks(found: TrainingTasks, share: float) -> tuple[str, ...]:
    """The first of RL's tasks, or all of them and others of the same levels. Raises ValueError where the source has too few."""
    own = task_list(found.settings, found.source).task_ids
    wanted = max(1, round(len(own) * share))
    if wanted <= len(own):
        return own[:wanted]
    # A list of as many holds at least as many new ones as are wanted, whatever it has in common with RL's.
    larger = {"steps": wanted, "groups_per_step": 1, "set_aside": "none", "seed": found.settings.seed + 1}
    drawn = task_list(found.settings.model_copy(update=larger), found.source).task_ids
    others = [task for task in drawn if task not in set(own)]
    return (*own, *others[: wanted - len(own)])


async def _sample(context: Context, tasks: Sequence[str], store: GroupStore) -> None:
    """Every task's group of attempts that is not stored yet."""
    recipe, start = context.recipe, sft_checkpoint(context)
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    policy = open_policy(context, start, context.stage, max_slots=max(recipe.engine.max_slots, recipe.rl.slots))
    try:
        async with code_search(recipe.harness) as search:
            renderer = load_renderer(start)
            await _check_prompts(context, tasks, recipe.engine.max_len, renderer)
            graders = graders_with(recipe.tasks.plugins)
            setup = AttemptSetup(policy, pool, graders, recipe.harness, renderer, recipe.rl.attempt, search=search)
            await GroupSampler(context, tasks, store, setup).run()
    finally:
        policy.close()
        await pool.close()


async def _check_prompts(context: Context, tasks: Sequence[str], max_len: int, renderer: Renderer) -> None:
    """As RL does before its rollouts. Raises NoRoom."""
    recipe, source = context.recipe, practice(context.recipe).source
    window = Window(max_len, load_config(sft_checkpoint(context), recipe.model.impl).context_length)
    sampled = [source.task(task) for task in sample_of(tasks)]
    plain = recipe.rl.model_copy(update={"efforts": {}})  # this stage attempts all at harness.effort
    observer = EventLogObserver(context.log, context.stage)
    await check_prompts(sampled, plain, recipe.harness, window, renderer, observer)


class GroupSampler:
    """Attempts of many groups at once; a group is stored when its last attempt is in."""

    def __init__(self, context: Context, tasks: Sequence[str], store: GroupStore, setup: AttemptSetup) -> None:
        self.context, self.tasks, self.store, self.setup = context, tasks, store, setup
        self.size = context.recipe.rl.group_size
        self.found: dict[int, list[Rollout]] = {}

    async def run(self) -> None:
        """A task whose attempts keep meeting infrastructure errors is left out and noted. Raises StageError where more than `rl.max_unreachable`
        are; what is stored stays."""
        source = practice(self.context.recipe).source
        missing = [group for group in range(len(self.tasks)) if not self.store.path(group).is_file()]
        work = [
            AttemptJob(source.task(self.tasks[g]), f"{self.tasks[g]}#{g}.{m}", self._seed(g, m), g)
            for g in missing
            for m in range(self.size)
        ]
        # In this order and not in turns: a group is stored only when all its attempts are made.
        jobs = [CampaignJob(one.name, one) for one in work]
        if not jobs:
            return
        summary = await run_campaign(
            jobs,
            make_attempts(self.setup),
            append=self._append,
            workers=self.context.recipe.rl.slots,
            observer=_GroupProgress(self.context, len(jobs)),
        )
        failed = [group for group in missing if not self.store.path(group).is_file()]
        if not failed:
            return
        lost, last, most = (
            len(summary.faults),
            list(summary.faults.values())[-1],
            self.context.recipe.rl.max_unreachable,
        )
        if len(failed) > most:
            raise StageError(
                f"{lost} of {len(jobs)} attempts, at {len(failed)} tasks, met infra faults, and rl.max_unreachable is {most}; the last: "
                f"{last}. Run again"
            )
        names = ", ".join(self.tasks[group] for group in failed)
        self.context.log.note(
            self.context.stage, f"left out, for their attempts met infra faults: {names}; the last: {last}"
        )

    def _append(self, job: CampaignJob[AttemptJob], made: Attempt) -> None:
        """The last attempt of a group writes the group."""
        place = job.work.group
        group = self.found.setdefault(place, [])
        group.append(made.rollout)
        if len(group) == self.size:
            self.store.save(place, sorted(group, key=lambda rollout: rollout.id))
            del self.found[place]

    def _seed(self, group: int, member: int) -> int:
        place = group * self.size + member
        return ((self.context.recipe.rl.seed + 1) << 41) + place * SEED_STRIDE


class _GroupProgress(NullCampaignObserver):
    """Reports how many attempts have ended, failed ones included."""

    def __init__(self, context: Context, whole: int) -> None:
        self._context, self._whole, self._ended = context, whole, 0

    def on_finish(self, job: CampaignJob[Any], record: None) -> None:
        self._report()

    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None:
        self._report()

    def _report(self) -> None:
        self._ended += 1
        self._context.log.progress(self._context.stage, self._ended, self._whole)
