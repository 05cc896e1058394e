"""The world around the controller: engines, trainer and hosts of sandboxes that die when the dice say so."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from typing import Any

from etude.core.trace.segment import Rollout
from etude.learn.engine.settings import EngineSettings
from etude.rl.groups import UnfinishedGroup
from etude.rl.learner import TrainedStep
from etude.rl.restarts import ProcessDied
from etude.rl.simulation.engine import MadeUpEngine
from etude.rl.simulation.region import MadeUpRegion
from etude.rl.simulation.shape import SimulationShape
from etude.rl.simulation.store import MadeUpStore
from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.simulation.world import FleetShape as HostShape
from etude.sandbox.fleet.simulation.world import SimulatedMachine

# Finished groups in memory: what `rl.store` has on disk.


class GroupsInMemory:
    """As `rl.store.GroupStore`; a group that was trained and is no longer needed can be dropped."""

    def __init__(self) -> None:
        self._held: dict[int, list[Rollout]] = {}

    def save(self, group: int, rollouts: list[Rollout]) -> None:
        self._held[group] = rollouts

    def keep(self, group: int, version: int, member: int, rollout: Rollout) -> None:
        """The simulated controller does not die, so what is unfinished is in its memory."""

    def forget(self, group: int) -> None:
        """Nothing was kept."""

    def unfinished_groups(self) -> dict[int, UnfinishedGroup[Rollout]]:
        return {}

    def load(self, group: int) -> list[Rollout]:
        return self._held[group]

    def digest(self, group: int) -> str:
        """Of what the group's tokens are and which versions sampled them."""
        contents = [(one.id, [segment.versions.tolist() for segment in one.segments]) for one in self._held[group]]
        return hashlib.sha256(repr(contents).encode()).hexdigest()[:8]


# A trainer made up: its weights are a digest of all that was trained, in order; it dies, and trained again it has the
# same digest.


class MadeUpTrainer:
    """What `services` asks of a trainer. `saves` outlives it, as a disk would."""

    def __init__(
        self,
        shape: SimulationShape,
        groups: GroupsInMemory,
        store: MadeUpStore,
        saves: dict[int, str],
        dice: random.Random,
    ) -> None:
        self._shape, self._groups, self._store, self._saves, self._dice = shape, groups, store, saves, dice
        self._weights = "initial"
        self._steps = 0
        self._due_s: dict[int, float] = {}
        self._dead = False

    async def restore(self, step: int) -> None:
        self._live()
        self._weights, self._steps = self._saves[step] if step else "initial", step

    async def train(self, groups: list[int]) -> TrainedStep:
        """Raises ValueError where a token is older than the bound allows."""
        self._live()
        took_s = self._shape.train_s * math.exp(self._dice.gauss(0, 0.2))
        await asyncio.sleep(took_s)
        self._live()
        for group in groups:
            for rollout in self._groups.load(group):
                if self._steps - rollout.start_version > self._shape.max_staleness:
                    raise ValueError(
                        f"group {group} is {self._steps - rollout.start_version} versions old at step {self._steps}"
                    )
        contents = f"{self._weights} {groups} {[self._groups.digest(group) for group in groups]}"
        self._weights = hashlib.sha256(contents.encode()).hexdigest()[:16]
        self._steps += 1
        rollouts = [rollout for group in groups for rollout in self._groups.load(group)]
        return TrainedStep(self._weights, {}, [rollout.rewards for rollout in rollouts], [0.0] * len(rollouts), took_s)

    async def publish(self, version: int) -> bool:
        self._live()
        if self._steps > version:
            return False
        self._due_s.setdefault(version, asyncio.get_running_loop().time() + self._shape.sync_s)
        return True

    async def publication_cost(self, version: int) -> dict[str, Any] | None:
        """It takes its time from the moment that it was copied."""
        self._live()
        if version not in self._due_s:
            return None
        await asyncio.sleep(max(0.0, self._due_s[version] - asyncio.get_running_loop().time()))
        self._live()
        delta = self._store.publish(version)
        return {"delta_bytes": delta, "seconds": 0.0, "ratio": 0.02, "anchor_bytes": 0}

    async def join(self, receiver: str, left: str | None) -> None:
        self._live()
        if left is not None:
            self._store.chain.leave(left)
        self._store.chain.join(receiver)

    async def heal(self) -> None:
        self._live()

    async def leave(self, receiver: str) -> None:
        self._live()
        self._store.chain.leave(receiver)

    async def acknowledge(self, receiver: str, version: int) -> None:
        self._live()
        self._store.chain.acknowledge(receiver, version)

    async def save(self, step: int) -> None:
        self._live()
        self._saves[step] = self._weights

    def die(self) -> None:
        """As by SIGKILL: no call of it ever returns."""
        self._dead = True

    kill = die

    def _live(self) -> None:
        if self._dead:
            raise ProcessDied("made to die")


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

    def remember(self) -> None:
        """Nothing outlives the simulation."""

    def start_engine(self, region: str = "") -> MadeUpEngine:
        dice = self.dice("engine", len(self.engines))
        self.engines.append(MadeUpEngine(self.shape, self.store, dice, self.regions.get(region)))
        return self.engines[-1]

    def start_trainer(self) -> MadeUpTrainer:
        if self.trainers:
            self.store.reopen()
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
