"""A trainer made up: its weights are a digest of all that was trained, in order; it dies, and trained again it has the same digest."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from typing import Any

from etude.rl.learner import TrainedStep
from etude.rl.restarts import ProcessDied
from etude.rl.simulation.groups import GroupsInMemory
from etude.rl.simulation.shape import SimulationShape
from etude.rl.simulation.store import MadeUpStore


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

    async def published(self, version: int) -> dict[str, Any] | None:
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
