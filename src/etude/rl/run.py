"""The rl stage: `run_rl` starts the processes, runs the schedule to its end and leaves the trained policy and the figures.

Folder: `ledger.jsonl` (decisions), `groups/` (finished rollouts, and what there is of unfinished groups), `states/` (trainer),
`weights/` (anchors and deltas), `steps.jsonl` (figures), `mixed.jsonl` (the weights of rewards), `harder.jsonl` (which tasks were served in
the stead of mastered ones), `gaps/` (trainer against sampler by token), `sessions/` (some rollouts in full), `judged.jsonl` (what a judge
said), `solvable.json` (what the start could solve), and at the end `checkpoint/` (Hugging Face), `summary.json`. Called again on the folder
of a killed run it goes on (promise 6).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.chat.load import load_renderer
from etude.chat.renderer import Renderer
from etude.engine.settings import EngineSettings
from etude.events.log import EventLog
from etude.factory.service.deepening import Deepening
from etude.factory.service.growing import Growing
from etude.factory.service.service import Service
from etude.factory.service.siblings import FolderSiblings, Siblings
from etude.fleet.open import open_sandboxes
from etude.fleet.settings import FleetSettings
from etude.harness.settings import HarnessSettings
from etude.model.checkpoint import load_config
from etude.rl.answering import check_answering, tell_answering
from etude.rl.attempts import Attempts
from etude.rl.cluster import Cluster
from etude.rl.controller import Controller
from etude.rl.efforts import check_efforts
from etude.rl.finish import finish
from etude.rl.follow import Follower
from etude.rl.held import held
from etude.rl.ledger import Ledger
from etude.rl.local_ray import LocalRay
from etude.rl.region import require_placed
from etude.rl.reload import fitted_to, in_force
from etude.rl.reloader import Reloader
from etude.rl.resume import open_progress, reconciler_at, train_again
from etude.rl.rewards.judge import RubricReward, rubric_reward
from etude.rl.rewards.mixed_file import MIXED, check_mixed
from etude.rl.schedule import Schedule, task_list
from etude.rl.services import STAGE, Places, Services
from etude.rl.sessions import KeptSessions
from etude.rl.settings import ClusterSettings, RlSettings
from etude.rl.solvable import SOLVABLE, measure
from etude.rl.store import GroupStore
from etude.rl.weight_store import require_own
from etude.rollout.attempt import Setup
from etude.rollout.code_search import CodeSearch, code_search
from etude.rollout.verdicts import Verdicts
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.registry import GRADERS
from etude.tasks.task import Grader, TaskSource

HARDER = "harder.jsonl"


@dataclass(frozen=True)
class RlRun:
    """All that decides a run, beside the files in its folder."""

    settings: RlSettings
    checkpoint: Path  # where it starts: a Hugging Face directory with tokenizer.json
    folder: Path
    source: TaskSource
    harness: HarnessSettings
    engine: EngineSettings
    sandbox: SandboxSettings
    log: EventLog
    graders: Mapping[str, Grader]
    fleet: FleetSettings = field(default_factory=FleetSettings)
    siblings: Siblings | None = None
    deepen: Callable[[SandboxPool], Deepening] | None = None


def run_rl(
    settings: RlSettings,
    *,
    checkpoint: Path,
    folder: Path,
    source: TaskSource,
    harness: HarnessSettings,
    engine: EngineSettings,
    sandbox: SandboxSettings,
    log: EventLog,
    graders: Mapping[str, Grader] = GRADERS,
    fleet: FleetSettings | None = None,
    cluster: ClusterSettings | None = None,
    siblings: Siblings | None = None,
    deepen: Callable[[SandboxPool], Deepening] | None = None,
) -> dict[str, Any]:
    """Train, or go on training; returns the summary (the report's `rl` object). Blocks; Ctrl-C stops it cleanly. `deepen`: makes the harder
    tasks that `siblings` lack."""
    if harness.temperature == 0:
        raise ValueError("harness.temperature is 0: the rollouts of a group would be all alike; RL needs it above 0")
    if settings.harder_above is not None and siblings is None:
        raise ValueError(
            f"rl.harder_above is {settings.harder_above}, but {source.name} knows no harder siblings of its tasks"
        )
    fleet, cluster = fleet or FleetSettings(), cluster or ClusterSettings()
    require_placed(settings.regions, cluster.address, cluster.engine)
    if settings.drafts.every and not load_config(checkpoint).mtp_layers:
        raise ValueError(
            f"rl.drafts.every is {settings.drafts.every}, but {checkpoint} has no draft layers: give it some (stage mtp), or set it to 0"
        )
    check_answering(settings, engine, checkpoint)
    settings = settings.model_copy(
        update={"update": settings.update.model_copy(update={"temperature": harness.temperature})}
    )
    checkpoint, folder = checkpoint.resolve(), folder.resolve()  # the processes have directories of their own
    folder.mkdir(parents=True, exist_ok=True)
    engine = fitted_to(settings, in_force(folder, engine))
    tell_answering(engine, lambda told: log.note(STAGE, told))
    run = RlRun(settings, checkpoint, folder, source, harness, engine, sandbox, log, graders, fleet, siblings, deepen)
    with _ray(run, cluster) as started:
        from etude.rl.placement import RayPlaces  # imports ray, which reads its environment then

        places = RayPlaces(checkpoint, folder, settings, engine, cluster)
        return asyncio.run(held(drive(run, places, on_start=started.remember), started.lost))


def _ray(run: RlRun, cluster: ClusterSettings) -> LocalRay | Cluster:
    """Where the processes are to run."""
    if not cluster.address:
        return LocalRay(run.folder / "ray.json")
    engines = run.settings.engines + run.settings.standbys
    needed = [run.checkpoint] + ([Path(run.engine.vllm.python)] if run.engine.kind == "vllm" else [])
    far = [region.engine for region in run.settings.regions.values()]
    return Cluster(cluster, run.folder, needed, engines, run.settings.ranks, far)


async def drive(run: RlRun, places: Places, on_start: Any = lambda: None) -> dict[str, Any]:
    """The controller's life on processes that `places` starts."""
    check_mixed(run.folder / MIXED, run.settings)
    rewards = rubric_reward(run.settings.rewards, run.settings.attempt, run.folder)
    async with code_search(run.harness) as search, rewards as reward:
        return await _drive(run, places, on_start, search, reward)


async def _drive(
    run: RlRun, places: Places, on_start: Any, search: CodeSearch | None, reward: RubricReward | None
) -> dict[str, Any]:
    started = time.perf_counter()
    settings = run.settings
    tasks = task_list(run.settings, run.source)
    store = GroupStore(run.folder / "groups")
    ledger = Ledger(run.folder / "ledger.jsonl")
    progress = open_progress(ledger, tasks)
    require_own(settings, run.folder, ledger, progress)
    if progress.next_step:
        run.log.note(STAGE, f"goes on at step {progress.next_step} with {len(progress.complete)} finished groups")
    services = Services(places, settings, run.log, on_start)
    renderer = load_renderer(run.checkpoint)
    check_efforts(run.settings, run.harness, renderer)
    pool = await open_sandboxes(run.fleet, run.sandbox)
    growing: Growing | None = None
    follower: Follower | None = None
    reloader = Reloader(run.folder, run.checkpoint, places, services, settings, lambda told: run.log.note(STAGE, told))
    try:
        setup = _setup(run, services, pool, renderer, search)
        sessions = KeptSessions(run.folder / "sessions", settings, renderer.vocabulary())
        service = _service(run, tasks.task_ids)
        growing = _growing(run, service, pool)
        follower = Follower(run, setup, sessions, services.engines, service, growing)
        await train_again(progress, tasks, store, ledger, services, follower.on_replay)
        await services.publish(progress.next_step)
        await services.sync(progress.next_step)
        await _solvable(run, setup, tasks, progress.next_step)
        ready, ready_cpu = time.perf_counter(), time.process_time()
        services.trainer_busy_s = 0.0  # what was trained again belongs to the start
        reconciler = reconciler_at(progress, tasks, settings, store)
        controller = Controller(
            reconciler,
            Attempts(run, setup, store.ended, sessions, reconciler, service, growing, reward),
            services,
            store,
            ledger,
            save_every=settings.save_every,
            on_step=follower.on_step,
            on_wait=lambda told: run.log.note(STAGE, told),
            on_aside=follower.on_aside,
            save_now=services.trainer_leaves,
        )
        reloader.start()
        await controller.run()
        if (made := reconciler.window.next_step) < settings.steps:
            run.log.note(
                STAGE,
                f"ends after {made} of {settings.steps} steps: the tasks to spare for groups set aside are used up",
            )
        times = {"start_s": ready - started, "train_s": time.perf_counter() - ready}
        times["controller_cpu_s"] = time.process_time() - ready_cpu
        await follower.evaluated()
        return await finish(run, services, renderer, times)
    finally:
        await reloader.close()
        if follower is not None:
            await follower.close()
        if growing is not None:
            await growing.close()
        await services.close()
        await pool.close()
        ledger.close()


async def _solvable(run: RlRun, setup: Setup, tasks: Schedule, step: int) -> None:
    """Once, before the first step."""
    path, count = run.folder / SOLVABLE, run.settings.solvable_tasks
    if step or not count or path.exists():
        return
    first = [run.source.task(task) for task in tasks.task_ids[:count]]
    note = lambda told: run.log.note(STAGE, told)
    await measure(first, setup, path, concurrency=run.settings.slots, seed=run.settings.seed, note=note)


def _setup(run: RlRun, services: Services, pool: Any, renderer: Renderer, search: CodeSearch | None) -> Setup:
    attempts = run.settings.attempt
    return Setup(
        services.policy, pool, run.graders, run.harness, renderer, attempts, verdicts=Verdicts(), search=search
    )


def _service(run: RlRun, scheduled: Sequence[str]) -> Service | None:
    above = run.settings.harder_above
    if above is None or run.siblings is None:
        return None
    return Service(run.siblings, run.folder / HARDER, scheduled, above)


def _growing(run: RlRun, service: Service | None, pool: SandboxPool) -> Growing | None:
    """Only a folder's tasks are made more of: exercises have a ladder of levels."""
    if service is None or run.deepen is None or not isinstance(run.siblings, FolderSiblings):
        return None
    return Growing(service, run.siblings, run.deepen(pool), lambda told: run.log.note(STAGE, told))
