"""Hundreds of fake hosts behind wires, with faults that strike sandboxes, answers and whole hosts."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from etude.sandbox.fake.faults import FaultPlan
from etude.sandbox.fake.pool import MEASURED, FakePool
from etude.sandbox.fleet.demand import Demand, HostFacts
from etude.sandbox.fleet.host import LocalHost
from etude.sandbox.fleet.placement import Placement
from etude.sandbox.fleet.wire.remote import RemoteHost
from etude.sandbox.fleet.wire.server import HostServer, LoopLink

CORES, MEMORY_MB = 64, 256 << 10  # of one host, as promised: four times over


@dataclass(frozen=True)
class FleetShape:
    """What is simulated. `faults`: the share of sandboxes that one strikes: a third each fail at birth, die in a command, lose an answer."""

    sandboxes: int = 10_000
    hosts: int = 500
    creates_per_s: float = 600.0
    commands: int = 4
    life_s: float = 60.0  # median; the spread makes some live five times as long
    faults: float = 0.01
    crashes: int = 2  # hosts whose process dies
    silences: int = 2  # hosts that answer nothing for two minutes, and come back
    seed: int = 0


class SimulatedMachine:
    """One fake host with its wire."""

    def __init__(self, number: int, shape: FleetShape) -> None:
        self.name = f"host-{number:03}"
        share = shape.faults / 3
        plan = FaultPlan({"create_fails": share, "dies_in_command": share / shape.commands})
        self.pool = FakePool(MEASURED, plan, seed=shape.seed + number, max_live=1000, max_running=CORES, name=self.name)
        facts = HostFacts(4 * MEMORY_MB, 8 * CORES, 1000, CORES, 50.0, self.pool.probe())
        server = HostServer(LocalHost(self.name, self.pool, facts, self._pressure))
        lost = share / (shape.commands + 2)
        # Values are handed over, not copied: pickling would be half of the time, and is tested elsewhere.
        self.link = LoopLink(server, delay_s=0.0005, lost=lost, seed=shape.seed + number, copying=False)
        self.host = RemoteHost(self.name, self.link)

    def _pressure(self) -> tuple[float, float]:
        stats = self.pool.stats()
        return stats.running / CORES, stats.live / 1000

    def crash(self) -> None:
        self.link.broken = True
        self.pool.crash()


class TimedPlacement(Placement):
    """Notes how long each decision took by the machine's own clock."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.decisions_s: list[float] = []

    def choose(self, demand: Demand, now_s: float, avoid: frozenset[str] = frozenset()) -> str | None:
        start = time.perf_counter()
        found = super().choose(demand, now_s, avoid)
        self.decisions_s.append(time.perf_counter() - start)
        return found


async def strike(machines: list[SimulatedMachine], shape: FleetShape) -> None:
    """The hosts' own faults, spread over the time in which creates come."""
    rng = random.Random(shape.seed + 77)
    struck = rng.sample(machines, shape.crashes + shape.silences)
    span_s = shape.sandboxes / shape.creates_per_s
    for number, machine in enumerate(struck):
        await asyncio.sleep(rng.random() * span_s / len(struck))
        if number < shape.crashes:
            machine.crash()
        else:
            machine.link.silent = True
            asyncio.get_running_loop().call_later(120.0, setattr, machine.link, "silent", False)
