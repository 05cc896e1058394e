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
    """Attempts of many groups at once, each kept when it ends; a group is stored when its last attempt is in."""

    def __init__(self, context: Context, tasks: Sequence[str], store: GroupStore, setup: AttemptSetup) -> None:
        self.context, self.tasks, self.store, self.setup = context, tasks, store, setup
        self.size = context.recipe.rl.group_size
        self.found: dict[int, dict[int, Rollout]] = {}  # of groups that are not whole, by member

    async def run(self) -> None:
        """Attempts that an earlier life of the run kept are not made again. A task whose attempts keep meeting infrastructure errors is left out
        and noted. Raises StageError where more than `rl.max_unreachable` are, and starts no attempt after that; what is stored stays."""
        jobs = self._jobs()
        if not jobs:
            return
        most = self.context.recipe.rl.max_unreachable
        progress = _GroupProgress(self.context, len(self.tasks) * self.size, len(jobs))
        summary = await run_campaign(
            jobs,
            make_attempts(self.setup),
            append=self._append,
            workers=self.context.recipe.rl.slots,
            needed=lambda job: len(progress.faulty) <= most,
            observer=progress,
        )
        if not progress.faulty:
            return
        lost, last = len(summary.faults), list(summary.faults.values())[-1]
        if len(progress.faulty) > most:
            raise StageError(
                f"{lost} of {len(jobs)} attempts, at {len(progress.faulty)} tasks, met infra faults, and rl.max_unreachable is {most}; the last: "
                f"{last}. Run again"
            )
        names = ", ".join(self.tasks[group] for group in sorted(progress.faulty))
        self.context.log.note(
            self.context.stage, f"left out, for their attempts met infra faults: {names}; the last: {last}"
        )

    def _jobs(self) -> list[CampaignJob[AttemptJob]]:
        """The attempts that are neither stored nor kept, group by group and not in turns: a group is stored only when all of it is made."""
        source = practice(self.context.recipe).source
        kept = self.store.unfinished_groups()
        jobs: list[CampaignJob[AttemptJob]] = []
        for group, task in enumerate(self.tasks):
            if self.store.path(group).is_file():
                self.store.forget(group)
                continue
            names = {member: f"{task}#{group}.{member}" for member in range(self.size)}
            results = kept[group].results if group in kept else {}
            self.found[group] = {m: made for m, made in results.items() if made.id == names.get(m)}
            for member, name in names.items():
                if member not in self.found[group]:
                    work = AttemptJob(source.task(task), name, self._seed(group, member), group, member)
                    jobs.append(CampaignJob(name, work))
        return jobs

    def _append(self, job: CampaignJob[AttemptJob], made: Attempt) -> None:
        """The last attempt of a group writes the group."""
        group, member = job.work.group, job.work.member
        found = self.found[group]
        found[member] = made.rollout
        if len(found) < self.size:
            self.store.keep(group, 0, member, made.rollout)
            return
        self.store.save(group, [found[place] for place in sorted(found)])
        self.store.forget(group)
        del self.found[group]

    def _seed(self, group: int, member: int) -> int:
        place = group * self.size + member
        return ((self.context.recipe.rl.seed + 1) << 41) + place * SEED_STRIDE


class _GroupProgress(NullCampaignObserver):
    """Reports how many attempts have ended, failed ones and those of an earlier life included; notes faults, and `faulty` has their groups."""

    def __init__(self, context: Context, whole: int, left: int) -> None:
        self._context, self._whole, self._ended = context, whole, whole - left
        self.faulty: set[int] = set()

    def on_finish(self, job: CampaignJob[Any], record: None) -> None:
        self._report()

    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None:
        self.faulty.add(job.work.group)
        self._context.log.note(self._context.stage, f"no attempt: {fault}")
        self._report()

    def _report(self) -> None:
        self._ended += 1
        self._context.log.progress(self._context.stage, self._ended, self._whole)
