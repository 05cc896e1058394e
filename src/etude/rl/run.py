"""The rl stage: `run_rl` starts the processes, runs the schedule to its end and leaves the trained policy and the figures.

Folder: `ledger.jsonl` (decisions), `groups/` (finished rollouts, and what there is of unfinished groups), `states/` (trainer),
`weights/` (anchors and deltas), `steps.jsonl` (figures), `mixed.jsonl` (the weights of rewards), `harder.jsonl` (which tasks were served in
the stead of mastered ones), `gaps/` (trainer against sampler by token), `sessions/` (some rollouts in full), `judged.jsonl` (what a judge
said), `solvable.json` (what the start could solve), and at the end `checkpoint/` (Hugging Face), `summary.json`. Called again on the folder
of a killed run it goes on (promise 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from etude.core.plugins import import_object, is_import_path
from etude.learn.model.checkpoint import load_config
from etude.learn.model.transformers_backend.config import implementation_of
from etude.rl.baseline import custom_advantages
from etude.rl.cluster import Cluster
from etude.rl.devices import check_devices
from etude.rl.local_ray import LocalRay
from etude.rl.region import require_placed
from etude.rl.reload import fitted_to, in_force
from etude.rl.reloader import check_engine, log_engine
from etude.rl.rewards.library import components
from etude.rl.run_context import RunContext
from etude.rl.training_run import run_training

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


def run_rl(run: RunContext) -> dict[str, Any]:
    """Train, or go on training; returns the summary (the report's `rl` object). Blocks; Ctrl-C stops it cleanly."""
    _require(run)
    run = _resolved(run)
    run.folder.mkdir(parents=True, exist_ok=True)
    run = replace(run, engine=fitted_to(run.settings, in_force(run.folder, run.engine)))
    log_engine(run.engine, run.observer)
    address = run.cluster.address
    run.observer.phase(f"connecting to Ray at {address}" if address else "starting Ray")
    with _ray(run) as started:
        from etude.rl.placement import RayPlaces  # imports ray, which reads its environment then

        places = RayPlaces(run.checkpoint, run.folder, run.settings, run.engine, run.cluster, started, run.impl)
        return asyncio.run(stop_if_ray_is_lost(run_training(run, places), started.lost))


def _require(run: RunContext) -> None:
    """Raises ValueError where settings of different sections do not go together."""
    settings = run.settings
    if run.harness.temperature == 0:
        raise ValueError("harness.temperature is 0: the rollouts of a group would be all alike; RL needs it above 0")
    if settings.harder_above is not None and run.harder is None:
        raise ValueError(
            f"rl.harder_above is {settings.harder_above}, but {run.source.name} knows no harder siblings of its tasks"
        )
    if settings.rewards.judge and run.judge is None:
        raise ValueError(
            f"rl.rewards.judge is {settings.rewards.judge!r}, but the run has no judge: give RunContext one, or leave the setting out"
        )
    if settings.parallel.ranks > 1:
        own = implementation_of(run.checkpoint, run.impl) == "etude"
        experts = load_config(run.checkpoint, run.impl).experts
        settings.parallel.require("rl", experts=experts, own=own)
    if settings.drafts.every and not load_config(run.checkpoint, run.impl).mtp_layers:
        raise ValueError(
            f"rl.drafts.every is {settings.drafts.every}, but {run.checkpoint} has no draft layers: give it some (stage mtp), or set it to 0"
        )
    components(settings.rewards.custom)  # the modules are imported now, not after the first rollouts
    if is_import_path(settings.baseline):
        custom_advantages(settings.baseline)
    if is_import_path(settings.update.trust.kind):
        import_object(settings.update.trust.kind)
    require_placed(settings.regions, run.cluster.address, run.cluster.engine)
    check_engine(settings, run.engine, run.checkpoint, run.impl)
    check_devices(settings, run.engine, run.cluster)


def _resolved(run: RunContext) -> RunContext:
    """With whole paths, because the processes have directories of their own, and the update at the rollouts' temperature."""
    update = run.settings.update.model_copy(update={"temperature": run.harness.temperature})
    settings = run.settings.model_copy(update={"update": update})
    return replace(run, settings=settings, checkpoint=run.checkpoint.resolve(), folder=run.folder.resolve())


def _ray(run: RunContext) -> LocalRay | Cluster:
    """Where the processes are to run."""
    if not run.cluster.address:
        return LocalRay(run.folder / "ray.json")
    engines = run.settings.engines + run.settings.standbys
    needed = [run.checkpoint] + ([Path(run.engine.vllm.python)] if run.engine.kind == "vllm" else [])
    far = [region.engine for region in run.settings.regions.values()]
    return Cluster(run.cluster, run.folder, needed, engines, run.settings.trainer_ranks, far)
