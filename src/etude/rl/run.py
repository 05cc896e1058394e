"""The rl stage: `run_rl` starts the processes, runs the schedule to its end and leaves the trained policy and the figures.

Folder: `ledger.jsonl` (decisions), `groups/` (finished rollouts, and what there is of unfinished groups), `states/` (trainer),
`weights/` (anchors and deltas), `steps.jsonl` (figures), `mixed.jsonl` (the weights of rewards), `harder.jsonl` (which tasks were served in
the stead of mastered ones), `gaps/` (trainer against sampler by token), `sessions/` (some rollouts in full), `judged.jsonl` (what a judge
said), `solvable.json` (what the start could solve), and at the end `checkpoint/` (Hugging Face), `summary.json`. Called again on the folder
of a killed run it goes on (promise 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from etude.agent.harness.settings import HarnessSettings
from etude.core.events.log import EventLog
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.checkpoint import load_config
from etude.rl.cluster import Cluster
from etude.rl.devices import check_devices
from etude.rl.local_ray import LocalRay
from etude.rl.region import require_placed
from etude.rl.reload import fitted_to, in_force
from etude.rl.reloader import check_engine, log_engine
from etude.rl.services import STAGE
from etude.rl.settings import ClusterSettings, RlSettings
from etude.rl.training_run import run_training
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.harder_tasks.builder import HarderTaskBuilder
from etude.tasks.generate.harder_tasks.variants import HarderVariants
from etude.tasks.registry import GRADERS
from etude.tasks.task import Grader, TaskSource

# Work that rests on something which may go for good: it ends with that, instead of waiting for ever for answers that
# can't come.


Result = TypeVar("Result")
LOOK_S = 1.0


class RayLost(Exception):
    """A process of Ray's own has ended, and no actor can be started any more: the run stops and says so; run again to go on."""


async def stop_if_ray_is_lost(
    work: Coroutine[Any, Any, Result], lost: Callable[[], str], look_s: float = LOOK_S
) -> Result:
    """The result of `work`. `lost` names what of Ray is gone, or nothing: then the work is cancelled, and RayLost raised, whatever the work
    made of it."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done() and not lost():
            await asyncio.wait([task], timeout=look_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    error = None if task.cancelled() else task.exception()
    if (task.cancelled() or error is not None) and (name := lost()):
        raise RayLost(
            f"Ray's own process {name} has ended, and no other can be started without it. Nothing that was trained is lost: run again, it goes on"
        ) from error
    return task.result()


@dataclass(frozen=True)
class RlRun:
    """All that decides a run, apart from the files in its folder."""

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
    siblings: HarderVariants | None = None
    deepen: Callable[[SandboxPool], HarderTaskBuilder] | None = None


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
    siblings: HarderVariants | None = None,
    deepen: Callable[[SandboxPool], HarderTaskBuilder] | None = None,
) -> dict[str, Any]:
    """Train, or go on training; returns the summary (the report's `rl` object). Blocks; Ctrl-C stops it cleanly. `deepen`: makes the harder
    tasks that `siblings` lack."""
    fleet, cluster = fleet or FleetSettings(), cluster or ClusterSettings()
    _require(settings, checkpoint, source, harness, siblings)
    require_placed(settings.regions, cluster.address, cluster.engine)
    check_engine(settings, engine, checkpoint)
    check_devices(settings, engine, cluster)
    settings = settings.model_copy(
        update={"update": settings.update.model_copy(update={"temperature": harness.temperature})}
    )
    checkpoint, folder = checkpoint.resolve(), folder.resolve()  # the processes have directories of their own
    folder.mkdir(parents=True, exist_ok=True)
    engine = fitted_to(settings, in_force(folder, engine))
    log_engine(engine, lambda text: log.note(STAGE, text))
    run = RlRun(settings, checkpoint, folder, source, harness, engine, sandbox, log, graders, fleet, siblings, deepen)
    log.phase(STAGE, f"connecting to Ray at {cluster.address}" if cluster.address else "starting Ray")
    with _ray(run, cluster) as started:
        from etude.rl.placement import RayPlaces  # imports ray, which reads its environment then

        places = RayPlaces(checkpoint, folder, settings, engine, cluster)
        return asyncio.run(stop_if_ray_is_lost(run_training(run, places, on_start=started.remember), started.lost))


def _require(
    settings: RlSettings,
    checkpoint: Path,
    source: TaskSource,
    harness: HarnessSettings,
    siblings: HarderVariants | None,
) -> None:
    """Raises ValueError where settings of different rooms do not go together."""
    if harness.temperature == 0:
        raise ValueError("harness.temperature is 0: the rollouts of a group would be all alike; RL needs it above 0")
    if settings.harder_above is not None and siblings is None:
        raise ValueError(
            f"rl.harder_above is {settings.harder_above}, but {source.name} knows no harder siblings of its tasks"
        )
    if settings.drafts.every and not load_config(checkpoint).mtp_layers:
        raise ValueError(
            f"rl.drafts.every is {settings.drafts.every}, but {checkpoint} has no draft layers: give it some (stage mtp), or set it to 0"
        )


def _ray(run: RlRun, cluster: ClusterSettings) -> LocalRay | Cluster:
    """Where the processes are to run."""
    if not cluster.address:
        return LocalRay(run.folder / "ray.json")
    engines = run.settings.engines + run.settings.standbys
    needed = [run.checkpoint] + ([Path(run.engine.vllm.python)] if run.engine.kind == "vllm" else [])
    far = [region.engine for region in run.settings.regions.values()]
    return Cluster(cluster, run.folder, needed, engines, run.settings.ranks, far)
