"""The world around the controller: engines, trainer and hosts of sandboxes that die when the dice say so."""

from __future__ import annotations

import asyncio
import random

from etude.learn.engine.settings import EngineSettings
from etude.rl.simulation.engine import MadeUpEngine
from etude.rl.simulation.groups import GroupsInMemory
from etude.rl.simulation.region import MadeUpRegion
from etude.rl.simulation.shape import SimulationShape
from etude.rl.simulation.store import MadeUpStore
from etude.rl.simulation.trainer import MadeUpTrainer
from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.simulation.world import FleetShape as HostShape
from etude.sandbox.fleet.simulation.world import SimulatedMachine


class SimulatedCluster:
    """`services.Places`, and who strikes there. Every part has dice of its own, so that one's draws don't shift another's."""

    def __init__(self, shape: SimulationShape) -> None:
        self.shape = shape
        self.engine = EngineSettings()
        self.groups = GroupsInMemory()
        self.store = MadeUpStore(shape.anchor_every, self.dice("store"))
        self.saves: dict[int, str] = {}
        self.engines: list[MadeUpEngine] = []
        self.trainers: list[MadeUpTrainer] = []
        self.regions = {f"r{n}": MadeUpRegion(shape, self.store, self.dice("region", n)) for n in range(shape.regions)}
        self._relays = [asyncio.create_task(region.relay()) for region in self.regions.values()]
        hosts = HostShape(hosts=shape.hosts, commands=2, faults=shape.faults, seed=shape.seed)
        self.machines = [SimulatedMachine(number, hosts) for number in range(shape.hosts if shape.fleet else 0)]

    def dice(self, *part: object) -> random.Random:
        return random.Random(f"{self.shape.seed} {part}")

    def start_engine(self, region: str = "") -> MadeUpEngine:
        dice = self.dice("engine", len(self.engines))
        self.engines.append(MadeUpEngine(self.shape, self.store, dice, self.regions.get(region)))
        return self.engines[-1]

    def start_trainer(self) -> MadeUpTrainer:
        if self.trainers:
            self.store.reopened()
        dice = self.dice("trainer", len(self.trainers))
        self.trainers.append(MadeUpTrainer(self.shape, self.groups, self.store, self.saves, dice))
        return self.trainers[-1]

    def close(self) -> None:
        for relay in self._relays:
            relay.cancel()

    async def open_fleet(self) -> Fleet | None:
        if not self.shape.fleet:
            return None
        settings = FleetSettings(attempts=4, patience_s=600.0)
        return await Fleet.open([one.host for one in self.machines], settings, owner="simulation", seed=self.shape.seed)

    async def strike(self) -> None:
        """Deaths at chance times over about as long as the run takes with a trainer that never waits."""
        dice, shape = self.dice("strike"), self.shape
        span_s = shape.steps * (shape.train_s + shape.sync_s + shape.swap_s)
        whom = (
            ["process"] * shape.deaths
            + ["hang"] * shape.hangs
            + ["host"] * min(shape.host_deaths, max(0, len(self.machines) - 1))
            + ["link"] * (shape.outages if self.regions else 0)
        )
        lately = slice(-shape.engines - shape.standbys - shape.regions * shape.region_engines, None)
        for at_s, who in sorted((dice.random() * span_s, who) for who in whom):
            await asyncio.sleep(max(0.0, at_s - asyncio.get_running_loop().time()))
            if who == "host":
                living = [one for one in self.machines if not one.link.broken]
                dice.choice(living).crash()
            elif who == "link":
                region = dice.choice(list(self.regions.values()))
                region.link.clear()
                asyncio.get_running_loop().call_later(shape.outage_s * dice.uniform(0.5, 1.5), region.link.set)
            elif who == "hang":
                dice.choice(self.engines[lately]).hang()
            else:
                dice.choice([*self.engines[lately], self.trainers[-1]]).die()
