"""Rollouts as the rollout room makes them, boiled down: infra faults are retried in a fresh sandbox, and never counted as a result."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import math
import random
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any

from etude.sandbox.errors import InfraError
from etude.sandbox.fake.clock import run
from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.simulation.world import FleetShape, SimulatedMachine, TimedPlacement, strike
from etude.sandbox.spec import SandboxSpec

ATTEMPTS = 10  # of one rollout before it counts as lost


@dataclass
class RolloutCounts:
    """`story`: a digest of what happened in which order, by which two runs of one seed are compared."""

    done: int = 0
    lost: int = 0
    wrong: int = 0
    peak_live: int = 0
    live: int = 0

    def __post_init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.births_s: list[float] = []  # when each create was done
        self.create_s: list[float] = []
        self.story = hashlib.sha256()


def simulate(shape: FleetShape) -> dict[str, Any]:
    """Figures of one run. Deterministic but for `decision_ms`, which is real time."""
    return run(_simulate(shape))


async def _simulate(shape: FleetShape) -> dict[str, Any]:
    rng, tally = random.Random(shape.seed), RolloutCounts()
    machines = [SimulatedMachine(number, shape) for number in range(shape.hosts)]
    placement = TimedPlacement(shape.seed)
    settings = FleetSettings(attempts=4, patience_s=600.0)
    fleet = await Fleet.open(
        [one.host for one in machines], settings, placement=placement, owner="simulation", seed=shape.seed
    )
    striking = asyncio.create_task(strike(machines, shape))
    rollouts: list[asyncio.Task[None]] = []
    start_s = asyncio.get_running_loop().time()
    for number in range(shape.sandboxes):
        due_s = start_s + number / shape.creates_per_s - asyncio.get_running_loop().time()
        if due_s > 0:
            await asyncio.sleep(due_s)
        life_s = shape.life_s * math.exp(rng.gauss(0, 0.5))
        rollouts.append(asyncio.create_task(_rollout(number, life_s, shape, fleet, tally)))
    await asyncio.gather(*rollouts)
    await striking
    await asyncio.sleep(180.0)  # three leases: what a silent host held is found and ended
    left = sum(machine.pool.stats().live for machine in machines)
    await fleet.close()
    return _figures(shape, fleet, tally, placement, start_s, left)


async def _rollout(number: int, life_s: float, shape: FleetShape, fleet: Fleet, tally: RolloutCounts) -> None:
    for _ in range(ATTEMPTS):
        try:
            answer = await _attempt(number, life_s, shape, fleet, tally)
        except InfraError as error:
            tally.faults[type(error).__name__] += 1
            tally.story.update(f"{number}:{type(error).__name__};".encode())
            continue
        tally.done += 1
        tally.wrong += answer != f"{number}\n".encode() * shape.commands
        tally.story.update(f"{number}:{asyncio.get_running_loop().time():.6f};".encode())
        return
    tally.lost += 1


async def _attempt(number: int, life_s: float, shape: FleetShape, fleet: Fleet, tally: RolloutCounts) -> bytes:
    loop = asyncio.get_running_loop()
    asked_s = loop.time()
    box = await fleet.create(SandboxSpec(memory_mb=512, labels={"rollout": str(number)}))
    tally.births_s.append(loop.time())
    tally.create_s.append(loop.time() - asked_s)
    tally.live += 1
    tally.peak_live = max(tally.peak_live, tally.live)
    try:
        for _ in range(shape.commands):
            await asyncio.sleep(life_s / shape.commands)  # the model thinks
            done = await box.run(f"echo {number} >> answer")
            assert done.rc == 0
        return await box.read("answer")
    finally:
        tally.live -= 1
        await _kill(box)


async def _kill(box: Any) -> None:
    try:
        await box.kill()
    except InfraError:
        return  # the host ends it when it finds that it has no owner


def _figures(
    shape: FleetShape, fleet: Fleet, tally: RolloutCounts, placement: TimedPlacement, start_s: float, left: int
) -> dict[str, Any]:
    per_second = Counter(int(at - start_s) for at in tally.births_s)
    full = [per_second[second] for second in range(max(1, int(shape.sandboxes / shape.creates_per_s)))]
    decisions = [one * 1000 for one in placement.decisions_s]
    return {
        "shape": dataclasses.asdict(shape),
        "rollouts": {"done": tally.done, "lost": tally.lost, "wrong": tally.wrong},
        "faults": dict(sorted(tally.faults.items())),
        "creates": fleet.stats().created,
        "creates_per_s": {"min": min(full), "median": statistics.median(full)},
        "create_ms": {"p50": 1000 * _share(tally.create_s, 0.5), "p99": 1000 * _share(tally.create_s, 0.99)},
        "peak_live": tally.peak_live,
        "left_on_hosts": left,
        "decisions": len(decisions),
        "decision_ms": {"p50": _share(decisions, 0.5), "p99": _share(decisions, 0.99), "max": max(decisions)},
        "story": tally.story.hexdigest()[:16],
    }


def _share(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
