"""A whole run in made-up time, by the code that real runs go by: controller, reconciler, window, services, engines' policy, weight chain,
fleet. Made up are engines, trainer, store, wires and clock; all chance comes from one seed, and a seed tells the same story again.

What it checks while it runs: no token is older than the bound when it is trained (the trainer raises), nor than its group's admission; a
way leads to every version that an engine at home is asked to serve (the store raises). At the end: every task was trained once, no group
was left, no sandbox lives.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.events.log import EventLog
from etude.core.trace.segment import Rollout, Segment
from etude.rl.controller import Controller, StepResult
from etude.rl.groups import RolloutGroup
from etude.rl.ledger import RlLedger, fold
from etude.rl.observer import EventLogObserver
from etude.rl.reconciler import Reconciler
from etude.rl.region import RegionSettings
from etude.rl.resume import open_progress, reconciler_at, train_again
from etude.rl.rollout_state import RolloutSlot
from etude.rl.schedule import Schedule
from etude.rl.services import Services
from etude.rl.settings import RlSettings
from etude.rl.simulation.shape import SimulationShape
from etude.rl.simulation.world import SimulatedCluster
from etude.rl.watchdog import Watchdog
from etude.rollout.retry import InfraFault
from etude.sandbox.errors import InfraError
from etude.sandbox.fake.clock import run
from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.spec import SandboxSpec

# The resume ledger in memory, so that a hundred thousand rollouts wait for no disk.


class LedgerInMemory(RlLedger):
    """Like the file. It outlives its writer, but not the simulation."""

    def __init__(self) -> None:
        self.path = "made-up ledger"  # type: ignore[assignment] - for messages alone
        self.entries: list[dict[str, Any]] = []

    def write(self, kind: str, **values: Any) -> None:
        self.entries.append({"kind": kind, **values})

    def note(self, kind: str, **values: Any) -> None:
        self.entries.append({"kind": kind, **values})

    def close(self) -> None: ...


FOR_EVER_S = 1e5  # of made-up time since the last step: who waits longer hangs
LEASES_S = 180.0  # what a silent host held is found and ended


class SimulationTally:
    """What came of it. `story`: a digest of the events in their order."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.staleness: Counter[int] = Counter()
        self.complete_s: dict[int, float] = {}
        self.held_s: list[float] = []
        self.turns: list[int] = []
        self.faults = 0
        self.story = hashlib.sha256()

    def tell(self, *what: object) -> None:
        self.story.update(repr(what).encode())


def simulate(shape: SimulationShape) -> dict[str, Any]:
    """Figures of one run; all but `real_s` follow from the shape."""
    start = time.perf_counter()
    with _seldom_collected():
        figures = run(_simulate(shape))
    return figures | {"real_s": round(time.perf_counter() - start, 2)}


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Millions of short lives that end by themselves, few in a circle: looking for circles every 700 of them takes a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _simulate(shape: SimulationShape) -> dict[str, Any]:
    world, tally = SimulatedCluster(shape), SimulationTally()
    fleet = await world.open_fleet()
    settings = _settings(shape)
    tasks = Schedule(tuple(f"task-{number}" for number in range(settings.steps * settings.groups_per_step)))
    ledger = LedgerInMemory()
    services = Services(world, settings, EventLogObserver(EventLog.null()))
    progress, observer = open_progress(ledger, tasks), TallyingObserver(tally)
    await train_again(progress, tasks, world.groups, ledger, services, observer)  # type: ignore[arg-type]
    await services.publish(0)
    await services.sync(0)
    reconciler = reconciler_at(progress, tasks, settings, world.groups)  # type: ignore[arg-type]
    clock = asyncio.get_running_loop().time
    controller = Controller(
        reconciler, _attempts(reconciler, world, services, fleet, tally), services, world.groups, ledger,  # type: ignore[arg-type]
        save_every=shape.save_every, observer=observer, clock=clock,
    )  # fmt: skip
    began_s = clock()
    striking = asyncio.create_task(world.strike())
    await _until_it_hangs(controller, tally)
    spent_s = clock() - began_s
    striking.cancel()
    world.close()
    left = await _closed(services, fleet, world)
    _whole(ledger, tasks)
    regional = sum(engine.turns for engine in world.engines if engine.region is not None)
    return _figures(shape, services, tally, spent_s, left) | {"regional_turns": regional}


class TallyingObserver:
    """`controller.StepObserver`: counts each step of training."""

    def __init__(self, tally: SimulationTally) -> None:
        self._tally = tally

    def on_group(self, group: RolloutGroup[Rollout]) -> None: ...
    def on_set_aside(self, group: RolloutGroup[Rollout]) -> None: ...
    def note(self, text: str) -> None: ...
    async def on_replay(self, step: StepResult, groups: list[RolloutGroup[Rollout]]) -> None: ...

    async def on_step(self, step: StepResult, groups: list[RolloutGroup[Rollout]]) -> None:
        tally, now_s = self._tally, asyncio.get_running_loop().time()
        tally.steps.append(dict(step.values))
        tally.tell(step.step, step.digest, [group.index for group in groups], now_s)
        for group in groups:
            tally.held_s.append(now_s - tally.complete_s.pop(group.index, now_s))
            tally.staleness.update(step.step - rollout.start_version for rollout in group.members)


def _attempts(
    reconciler: Reconciler[Rollout], world: SimulatedCluster, services: Services, fleet: Fleet, tally: SimulationTally
) -> Callable[[RolloutSlot], Awaitable[Rollout]]:
    """What makes a slot's rollout."""
    loop = asyncio.get_running_loop()

    async def attempt(slot: RolloutSlot) -> Rollout:
        admitted = reconciler.groups[slot.group].version
        rollout = await _attempt(slot, world, services, fleet, tally)
        assert rollout.start_version >= admitted, "a token is older than the version that its group was admitted at"
        tally.complete_s[slot.group] = loop.time()
        return rollout

    return attempt


async def _until_it_hangs(controller: Controller, tally: SimulationTally) -> None:
    """Raises RuntimeError with whom the run waits for."""
    running = asyncio.create_task(controller.run())
    steps = -1
    while not running.done() and steps < len(tally.steps):
        steps = len(tally.steps)
        await asyncio.wait([running], timeout=FOR_EVER_S)
    if not running.done():
        waits = Watchdog().look(controller.doing, controller.reconciler.lives(), asyncio.get_running_loop().time())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        raise RuntimeError(f"the run hangs: {waits}")
    await running


def _settings(shape: SimulationShape) -> RlSettings:
    return RlSettings(
        steps=shape.steps,
        groups_per_step=shape.groups_per_step,
        group_size=shape.group_size,
        max_staleness=shape.max_staleness,
        slots=shape.slots,
        window=shape.window,
        engines=shape.engines,
        standbys=shape.standbys,
        save_every=shape.save_every,
        max_faults=10_000,
        max_restarts=10_000,
        regions={f"r{n}": RegionSettings(store=f"r{n}", engines=shape.region_engines) for n in range(shape.regions)},
        region_lag=min(shape.region_lag, shape.max_staleness),
    )


async def _attempt(
    slot: RolloutSlot, world: SimulatedCluster, services: Services, fleet: Fleet | None, tally: SimulationTally
) -> Rollout:
    """A rollout boiled down: a sandbox, turns of the policy between commands, and no retries of its own."""
    shape, dice = world.shape, world.dice(slot.group, slot.member, slot.attempt)
    turns = min(shape.most_turns, int(dice.paretovariate(shape.tail)))
    name = f"{slot.group}.{slot.member}.{slot.attempt}"
    versions: list[int] = []
    try:
        box = await fleet.create(SandboxSpec(memory_mb=512, labels={"rollout": name})) if fleet else None
        try:
            for turn in range(turns):
                done = await services.policy.complete(Request(name, (), prompt_ids=(1,), seed=turn))
                versions += done.tokens.versions if done.tokens else []
                await asyncio.sleep(shape.tool_s * dice.lognormvariate(0, 0.7))
                if box is None and dice.random() < shape.faults / turns:
                    raise InfraError("made to fail")
            if box is not None:
                await box.run(f"echo {name}")
        finally:
            await services.policy.release(name)
            if box is not None:
                await _kill(box)
    except (InfraError, PolicyError) as error:
        tally.faults += 1
        tally.tell(name, type(error).__name__)
        raise InfraFault(str(error)) from error
    tally.turns.append(turns)
    count = len(versions)
    segment = Segment(
        np.arange(count, dtype=np.int32),
        np.ones(count, dtype=bool),
        np.full(count, -0.5, dtype=np.float32),
        np.array(versions, dtype=np.int32),
    )
    return Rollout(name, slot.task_id, slot.group, [segment], {"outcome": float(dice.random() < 0.5)})


async def _kill(box: Any) -> None:
    try:
        await box.kill()
    except InfraError:
        return  # the host ends it when it finds that no client knows it


async def _closed(services: Services, fleet: Fleet | None, world: SimulatedCluster) -> int:
    """All ended; sandboxes left on the hosts."""
    await services.close()
    if fleet is None:
        return 0
    await asyncio.sleep(LEASES_S)
    left = sum(machine.pool.stats().live for machine in world.machines if not machine.link.broken)
    await fleet.close()
    return left


def _whole(ledger: LedgerInMemory, tasks: Schedule) -> None:
    progress = fold(ledger.entries)
    trained = [group for step in range(progress.next_step) for group in progress.batches[step]]
    assert sorted(trained) == list(range(len(tasks))), "a task was left out, or trained twice"


def _figures(
    shape: SimulationShape, services: Services, tally: SimulationTally, spent_s: float, left: int
) -> dict[str, Any]:
    total = sum(tally.staleness.values())
    wait_s = sum(step["wait_s"] for step in tally.steps)
    return {
        "shape": asdict(shape),
        "rollouts": total,
        "steps": len(tally.steps),
        "made_up_s": round(spent_s, 1),
        "rollouts_per_h": round(3600 * total / spent_s),
        "trainer_idle": round(wait_s / spent_s, 4),
        "staleness": {
            "max": max(tally.staleness),
            "mean": round(sum(age * count for age, count in tally.staleness.items()) / total, 3),
            "rollouts": {str(age): count for age, count in sorted(tally.staleness.items())},
        },
        "held_s": {
            "p50": _share(tally.held_s, 0.5),
            "p99": _share(tally.held_s, 0.99),
            "max": _share(tally.held_s, 1.0),
        },
        "turns": {"mean": round(statistics.fmean(tally.turns), 2), "max": max(tally.turns)},
        "faults": tally.faults,
        "restarts": services.restarts,
        "left_on_hosts": left,
        "story": tally.story.hexdigest()[:16],
    }


def _share(values: list[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 1)
