"""Runs the training loop: reads what is on disk, starts processes, brings them to the run's current step, and follows the schedule to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.agent.chat.load import load_renderer
from etude.agent.chat.renderer import Renderer
from etude.agent.policy.protocol import Policy, Request
from etude.core.events.finite import dumps, loads
from etude.core.files import replace_file
from etude.core.trace.segment import Rollout
from etude.learn.engine.probe import (
    PROMPT_TOKENS,
    SAMPLED_TOKENS,
    ProbeMismatch,
    probe_prompts,
    require_same_distribution,
)
from etude.learn.model.checkpoint import load_config
from etude.rl.attempts import RolloutAttempts
from etude.rl.collapse import CollapseWatch
from etude.rl.controller import Controller
from etude.rl.effort_sampling import check_efforts
from etude.rl.groups import RolloutGroup
from etude.rl.harder_tasks import HarderTasks
from etude.rl.ledger import Progress, RlLedger, entries_of, fold
from etude.rl.metrics import summarize
from etude.rl.preflight import Starvation, Window, check_prompts, sample_of
from etude.rl.reloader import Reloader
from etude.rl.restarts import ProcessPlacer
from etude.rl.resume import open_progress, reconciler_at, require_same_sources, train_again
from etude.rl.rewards.mix import MIXED, check_mixed
from etude.rl.run_context import RunContext
from etude.rl.schedule import Schedule, task_list
from etude.rl.services import Services
from etude.rl.sessions import KeptSessions
from etude.rl.solvable_share import SOLVABLE, measure
from etude.rl.step_follower import StepFollower
from etude.rl.steps import alarms_of, read, tokens_by_version
from etude.rl.store import GroupStore
from etude.rl.weight_store import require_own
from etude.rollout.attempt import AttemptSetup
from etude.rollout.code_search import CodeSearch, code_search
from etude.rollout.verdicts import Verdicts
from etude.sandbox.fleet.open import open_sandboxes
from etude.sandbox.protocol import SandboxPool

# The end of the rl stage: the mismatch probe, the checkpoint, and the summary for the report.


async def finish(run: RunContext, services: Services, renderer: Renderer, times: dict[str, float]) -> dict[str, Any]:
    """Write what the stage leaves behind; returns the summary."""
    mismatch = await _mismatch(run, services, len(renderer.vocabulary()))
    await services.export(run.folder / "checkpoint")
    records = read(run.folder / "steps.jsonl")
    totals = times | _shares(times["train_s"], services.trainer_busy_s, await services.engine_stats())
    totals["restarts"] = float(services.restarts)
    summary = summarize(
        [{"step": record.step, **record.values} for record in records], tokens_by_version(records), totals
    )
    summary["mismatch"] = mismatch
    summary["alarms"] = alarms_of(records)
    if given_up := fold(entries_of(run.folder / "ledger.jsonl")).unreachable:
        summary["unreachable"] = list(given_up.values())
    if (found := run.folder / SOLVABLE).exists():
        summary["solvable"] = loads(found.read_text(encoding="utf-8"))
    _write(run.folder / "summary.json", summary)
    return summary


async def _mismatch(run: RunContext, services: Services, vocabulary: int) -> dict[str, Any]:
    """The fixed probe (promise 3): sampled by the engine process under the last version, recomputed by the trainer."""
    found = await _probed(run, services, services.engines.newest, vocabulary, "probe")
    return {
        "k3": found.mean_k3,
        "p99": found.p99_dlogp,
        "max": found.max_dlogp,
        "routes_equal": found.routes_equal,
        "tokens": found.tokens,
        "routes": found.routes,
    }


async def _probed(run: RunContext, services: Services, engine: Policy, vocabulary: int, sessions: str) -> ProbeMismatch:
    """What `engine` samples after the fixed prompts, against the trainer's forward. `sessions` begins the names of its sessions: one that
    an engine knows from earlier weights would read what it computed with them."""
    room = run.engine.max_len - SAMPLED_TOKENS
    prompts = [prompt[: min(2 * PROMPT_TOKENS, room)] for prompt in probe_prompts(vocabulary, run.settings.seed)]
    requests = [
        Request(f"{sessions}-{n}", (), prompt_ids=prompt, max_tokens=SAMPLED_TOKENS, seed=n)
        for n, prompt in enumerate(prompts)
    ]
    answers = await asyncio.gather(*(engine.complete(request) for request in requests))
    return await services.compare([(p, a.tokens) for p, a in zip(prompts, answers, strict=True) if a.tokens])


async def check_outside_engines(run: RunContext, services: Services, vocabulary: int) -> None:
    """Before anything is sampled for training: each engine of other code at home samples from what the trainer computes. Raises EngineMismatch."""
    if run.engine.kind != "vllm":
        return
    narrow = "bf16" in (run.settings.update.compute, run.engine.vllm.dtype.replace("bfloat", "bf"))
    for one in services.engines.home:
        found = await _probed(run, services, one.client, vocabulary, "first-probe")
        require_same_distribution(found, f"vLLM ({one.lifeline.name})", "bf16" if narrow else "fp32")
        run.observer.note(f"the {one.lifeline.name} samples what the trainer computes: mean k3 {found.mean_k3:.1e}")


def _shares(wall_s: float, trainer_busy_s: float, engine: dict[str, float]) -> dict[str, float]:
    """Idle shares of the two processes over the training time (of this life of the run, if it was resumed)."""
    busy_s = sum(engine.get(name, 0.0) for name in ("decode_s", "prefill_s", "swap_s"))
    return {
        "engine_idle_share": max(0.0, 1 - busy_s / wall_s),
        "trainer_idle_share": max(0.0, 1 - trainer_busy_s / wall_s),
        **{
            f"engine_{name}": value
            for name, value in engine.items()
            if name in ("tokens_per_s", "mean_batch", "cache_hit", "refused_files") or name.startswith("acceptance_")
        },
    }


def _write(path: Path, value: Any) -> None:
    replace_file(path, dumps(value, indent=1) + "\n")


HARDER = "harder.jsonl"


@dataclass(frozen=True)
class RunRecords:
    """What a run knows of itself on disk, and what the ledger adds up to."""

    tasks: Schedule
    store: GroupStore
    ledger: RlLedger
    progress: Progress


@dataclass(frozen=True)
class RolloutServices:
    """What makes rollouts: how one is attempted, and where harder tasks come from."""

    setup: AttemptSetup
    sessions: KeptSessions
    harder: HarderTasks | None


async def run_training(run: RunContext, places: ProcessPlacer) -> dict[str, Any]:
    """Run the training loop on processes that `places` starts."""
    check_mixed(run.folder / MIXED, run.settings)
    async with code_search(run.harness) as search:
        return await _run(run, places, search)


async def _run(run: RunContext, places: ProcessPlacer, search: CodeSearch | None) -> dict[str, Any]:
    started, settings = time.perf_counter(), run.settings
    async with AsyncExitStack() as closes:  # the last that was opened first
        if run.judge is not None:
            closes.push_async_callback(run.judge.close)
        records = _open_records(run, closes)
        renderer = load_renderer(run.checkpoint)
        check_efforts(settings, run.harness, renderer)
        window = Window(run.engine.max_len, load_config(run.checkpoint, run.impl).context_length)
        run.observer.phase("measuring the first prompts")
        sampled = [run.source.task(task) for task in sample_of(records.tasks.task_ids)]
        await check_prompts(sampled, settings, run.harness, window, renderer, run.observer)
        run.observer.phase("opening sandboxes")
        pool = await open_sandboxes(run.fleet, run.sandbox)
        closes.push_async_callback(pool.close)
        services = Services(places, settings, run.observer)
        closes.push_async_callback(services.close)
        rollouts = _rollout_services(run, services, pool, renderer, search, records.tasks.task_ids)
        if rollouts.harder is not None:
            closes.push_async_callback(rollouts.harder.close)
        looks = _looks(run, window)
        follower = StepFollower(run, rollouts.setup, rollouts.sessions, services.engines, rollouts.harder, looks)
        closes.push_async_callback(follower.close)
        await _bring_up(run, records, services, rollouts.setup, follower)
        ready, ready_cpu = time.perf_counter(), time.process_time()
        reloader = Reloader(run.folder, run.checkpoint, places, services, settings, run.observer)
        closes.push_async_callback(reloader.close)
        reloader.start()
        await _train(run, records, services, rollouts, follower)
        times = {"start_s": ready - started, "train_s": time.perf_counter() - ready}
        times["controller_cpu_s"] = time.process_time() - ready_cpu
        await follower.on_evaluation_end()
        return await finish(run, services, renderer, times)


def _looks(run: RunContext, window: Window) -> tuple[Callable[[RolloutGroup[Rollout]], None], ...]:
    """What looks at each finished group, and may end the run."""
    collapse = CollapseWatch(run.settings)
    collapse.remember(read(run.folder / "steps.jsonl"))
    return Starvation(run.settings, run.harness, window, run.observer).look, collapse.look


def _open_records(run: RunContext, closes: AsyncExitStack) -> RunRecords:
    tasks = task_list(run.settings, run.source)
    ledger = closes.enter_context(closing(RlLedger(run.folder / "ledger.jsonl")))
    progress = open_progress(ledger, tasks)
    require_own(run.settings, run.folder, ledger, progress)
    require_same_sources(ledger, run.settings, [*run.graders, run.harness.preset, run.sandbox.backend])
    if progress.next_step:
        run.observer.note(f"goes on at step {progress.next_step} with {len(progress.complete)} finished groups")
    return RunRecords(tasks, GroupStore(run.folder / "groups"), ledger, progress)


async def _bring_up(
    run: RunContext, records: RunRecords, services: Services, setup: AttemptSetup, follower: StepFollower
) -> None:
    """Trainer and engines hold the version that the ledger ends at."""
    step = records.progress.next_step
    engines = f"{run.settings.engines} engine{'s' if run.settings.engines > 1 else ''}"
    run.observer.phase(f"loading the trainer and {engines}")
    await train_again(records.progress, records.tasks, records.store, records.ledger, services, follower)
    await services.publish(step)
    await services.sync(step)
    await check_outside_engines(run, services, load_config(run.checkpoint, run.impl).vocab_size)
    await _solvable(run, setup, records.tasks, step)
    services.trainer_busy_s = 0.0  # what was trained again belongs to the start


async def _train(
    run: RunContext,
    records: RunRecords,
    services: Services,
    rollouts: RolloutServices,
    follower: StepFollower,
) -> None:
    """From there to the schedule's end."""
    reconciler = reconciler_at(records.progress, records.tasks, run.settings, records.store)
    attempts = RolloutAttempts(
        run,
        rollouts.setup,
        records.store.ended,
        rollouts.sessions,
        reconciler,
        rollouts.harder,
        run.judge,
    )
    controller = Controller(
        reconciler,
        attempts,
        services,
        records.store,
        records.ledger,
        save_every=run.settings.save_every,
        observer=follower,
    )
    run.observer.phase(f"rolling out step {reconciler.window.next_step + 1} of {run.settings.steps}")
    await controller.run(report_waits=True)
    if (made := reconciler.window.next_step) < run.settings.steps:
        run.observer.note(
            f"ends after {made} of {run.settings.steps} steps: the tasks to spare for groups set aside are used up"
        )


async def _solvable(run: RunContext, setup: AttemptSetup, tasks: Schedule, step: int) -> None:
    """Once, before the first step."""
    path, count = run.folder / SOLVABLE, run.settings.solvable_tasks
    if step or not count or path.exists():
        return
    first = [run.source.task(task) for task in tasks.task_ids[:count]]
    await measure(first, setup, path, concurrency=run.settings.slots, seed=run.settings.seed, observer=run.observer)


def _rollout_services(
    run: RunContext,
    services: Services,
    pool: SandboxPool,
    renderer: Renderer,
    search: CodeSearch | None,
    scheduled: Sequence[str],
) -> RolloutServices:
    setup = AttemptSetup(
        services.policy,
        pool,
        run.graders,
        run.harness,
        renderer,
        run.settings.attempt,
        verdicts=Verdicts(),
        search=search,
    )
    sessions = KeptSessions(run.folder / "sessions", run.settings, renderer.vocabulary())
    return RolloutServices(setup, sessions, _harder_tasks(run, scheduled, pool))


def _harder_tasks(run: RunContext, scheduled: Sequence[str], pool: SandboxPool) -> HarderTasks | None:
    above = run.settings.harder_above
    if above is None or run.harder is None:
        return None
    return run.harder.open(run.folder / HARDER, scheduled, above, pool, run.observer)
