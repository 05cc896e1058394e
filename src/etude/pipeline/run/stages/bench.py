"""Stages trials and bench: held-out (or validation) tasks asked of every checkpoint and of scripted agents, in real sandboxes.

`trials` runs all policies except the control that is still being trained meanwhile; `bench` runs that one and makes all the figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from etude.agent.chat.load import load_renderer
from etude.agent.chat.renderer import Renderer
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import Policy
from etude.evaluate.bench.bench_stage import BenchStage
from etude.evaluate.bench.claims import discovery, lift
from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.runs import scripted
from etude.evaluate.bench.settings import DISCOVERY_LEVEL
from etude.evaluate.bench.summary import summarise
from etude.pipeline.run.practice import exam
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.loading import open_policy
from etude.pipeline.run.stages.pretraining import CHECKPOINT, base_checkpoint, chat_checkpoint
from etude.rollout.attempt import AttemptSetup, Script
from etude.rollout.code_search import CodeSearch, code_search
from etude.sandbox.fleet.open import open_sandboxes
from etude.sandbox.protocol import Machines
from etude.tasks.generate.exercises.overlap import overlap, seen_share, shared_with_validation
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.scripted_policies import BASELINES
from etude.tasks.registry import graders_with
from etude.tasks.task import Task

ON_ANY_TASK: dict[str, Script] = {
    "expert": scripted.expert,
    "nop": scripted.nop,
}  # the reference written down, and nothing done
CONTROLS = ("competent_sft", "rewarded_sft")  # stages
LAST = "rewarded_sft"  # trained while the others are asked


@dataclass(frozen=True)
class StageParticipant:
    """A policy that will be asked: `open` makes its Setup for as long as it is needed."""

    name: str
    passes: int
    open: Callable[[Machines], AbstractAsyncContextManager[AttemptSetup]]
    level_passes: Mapping[str, int] = field(default_factory=dict)  # levels with another number of passes


def run_trials(context: Context) -> None:
    """Leaves the outcomes of all but the last control (`<name>.jsonl`) and sessions to read."""
    asyncio.run(_ask(context, [c for c in _contestants(context) if c.name != LAST]))


def run(context: Context) -> None:
    """Leaves the outcomes of the last control, and `summary.json` over everyone's."""
    everyone = _contestants(context)
    sandbox = asyncio.run(_ask(context, [c for c in everyone if c.name == LAST]))
    found = {c.name: _contest(context, c.name).read(c.name, c.passes, c.level_passes) for c in everyone}
    context.summarize(_summary(context, found) | {"sandbox": sandbox})


async def _ask(context: Context, contestants: list[StageParticipant]) -> dict[str, Any]:
    """Every contestant at every task; returns what the sandboxes are."""
    pool = await open_sandboxes(context.recipe.fleet, context.recipe.sandbox)
    try:
        async with code_search(context.recipe.harness) as search:
            for contestant in contestants:
                await _ask_one(context, contestant, pool, search)
        return asdict(pool.probe())
    finally:
        await pool.close()


async def _ask_one(context: Context, contestant: StageParticipant, pool: Machines, search: CodeSearch | None) -> None:
    """A function, so that nothing refers to an engine, and its memory is free, when the next one is opened."""
    async with contestant.open(pool) as setup:
        contest = _contest(context, contestant.name)
        await contest.run(contestant.name, replace(setup, search=search), contestant.passes, contestant.level_passes)


def _contest(context: Context, name: str) -> BenchStage:
    """Where policy `name` is asked: each in one stage's folder."""
    settings, stage = context.recipe.bench, "bench" if name == LAST else "trials"
    return BenchStage(
        _tasks(context),
        context.of(stage),
        settings.concurrency,
        settings.seed,
        context.log,
        settings.keep_sessions,
        stage,
    )


def _tasks(context: Context) -> list[Task]:
    return exam(context.recipe).tasks


def _contestants(context: Context) -> list[StageParticipant]:
    settings = context.recipe.bench
    own = context.recipe.run.sft_checkpoint
    sft = Path(own) if own else context.of("sft") / CHECKPOINT
    more = {DISCOVERY_LEVEL: settings.passes_discovery}
    checkpoints = [
        ("base", base_checkpoint(context), settings.passes_base, {}),
        ("sft", sft, settings.passes, more),
        ("rl", context.of("rl") / CHECKPOINT, settings.passes, more),
        *((name, context.of(name) / CHECKPOINT, settings.passes_controls, {}) for name in CONTROLS),
    ]
    found = [
        StageParticipant(name, passes, _checkpoint(context, name, folder), at_level)
        for name, folder, passes, at_level in checkpoints
        if (folder / "config.json").is_file()
    ]
    return found + [
        StageParticipant(n, settings.passes_scripted, opened) for n, opened in _scripted_agents(context).items()
    ]


def _scripted_agents(
    context: Context,
) -> dict[str, Callable[[Machines], AbstractAsyncContextManager[AttemptSetup]]]:
    """The exercises' own agents speak the recipe's preset. Those for any task know the full preset alone."""
    harness = context.recipe.harness
    if not context.recipe.tasks.folder:
        asked = preset_of(harness)
        return {name: _scripted(context, partial(agent, preset=asked), harness) for name, agent in BASELINES.items()}
    known = harness if harness.preset == "nano" else harness.model_copy(update={"preset": "full", "tools_off": ()})
    return {name: _scripted(context, agent, known) for name, agent in ON_ANY_TASK.items()}


def _checkpoint(
    context: Context, name: str, folder: Path
) -> Callable[[Machines], AbstractAsyncContextManager[AttemptSetup]]:
    @asynccontextmanager
    async def opened(pool: Machines) -> AsyncIterator[AttemptSetup]:
        policy = open_policy(context, folder, name)
        try:
            yield _setup(context, pool, policy, load_renderer(folder))
        finally:
            policy.close()

    return opened


def _scripted(
    context: Context, script: Script, harness: HarnessSettings
) -> Callable[[Machines], AbstractAsyncContextManager[AttemptSetup]]:
    @asynccontextmanager
    async def opened(pool: Machines) -> AsyncIterator[AttemptSetup]:
        own = context.recipe.run.sft_checkpoint
        tokens = load_renderer(Path(own) if own else chat_checkpoint(context))  # tokens are counted, not sampled
        yield replace(_setup(context, pool, script, tokens), harness=_asked_at(context, harness))

    return opened


def _setup(context: Context, pool: Machines, policy: Policy | Script, renderer: Renderer) -> AttemptSetup:
    graders, harness = graders_with(context.recipe.tasks.plugins), _asked_at(context, context.recipe.harness)
    return AttemptSetup(policy, pool, graders, harness, renderer, context.recipe.rl.attempt)


def _asked_at(context: Context, harness: HarnessSettings) -> HarnessSettings:
    return harness.model_copy(update={"temperature": context.recipe.bench.temperature})


def _summary(context: Context, outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    settings, mix = context.recipe.bench, _mix(context)
    entries = {name: summarise(found, settings, mix) for name, found in outcomes.items()}
    known = ("base", "sft", "rl", *BASELINES)
    bench = {name: entry for name, entry in entries.items() if name in known}
    bench["controls"] = {name: entry for name, entry in entries.items() if name not in known}
    summary = {"split": settings.split, "bench": bench, "overlap": _overlap(context)}
    if {"sft", "rl"} <= outcomes.keys():
        before, after = outcomes["sft"], outcomes["rl"]
        summary["lift"] = lift(before, after, settings, mix)
        summary["over_controls"] = {name: lift(outcomes[name], after, settings, mix) for name in bench["controls"]}
        if any(o.level == DISCOVERY_LEVEL for o in after):
            summary["discovery"] = discovery(before, after, DISCOVERY_LEVEL, settings)
    return summary


def _mix(context: Context) -> dict[str, float]:
    """How training weighs the levels: what the suite leans on and the averages are weighted back to."""
    return dict(exam(context.recipe).mix)


def _overlap(context: Context) -> dict[str, Any]:
    """The statement and its figures, for the catalogue and for the very tasks that were asked."""
    asked_of = exam(context.recipe)
    if (folder := asked_of.folder) is not None:
        return {"statement": folder.apart(context.recipe.bench.split)}
    source, tasks = ExerciseSource(context.recipe.exercises), asked_of.tasks
    found = overlap(source.settings)
    asked = {"seen_share": seen_share(source, tasks), "validation_share": shared_with_validation(source, tasks)}
    return {"statement": found.statement(), **asdict(found), **asked}
