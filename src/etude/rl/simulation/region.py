"""A region made up: a link that is slow or lost, a relay over it by the real plan, a store at its end."""

from __future__ import annotations

import asyncio
import random

from etude.learn.weights.errors import Unreachable
from etude.learn.weights.path import cheapest
from etude.learn.weights.relay_plan import copies, kept_entries
from etude.learn.weights.store import StoreIndex
from etude.rl.simulation.shape import SimulationShape
from etude.rl.simulation.store import BYTES_PER_S, MadeUpStore

POLL_S, ROUND_TRIP_S = 0.5, 0.12


class MadeUpRegion:
    """`link`: set while it holds. `relay` copies for as long as the run lasts; what was under way when the link is lost is copied again."""

    def __init__(self, shape: SimulationShape, source: MadeUpStore, dice: random.Random) -> None:
        self._source = source
        self._pace = BYTES_PER_S * shape.link_share * dice.choice((0.3, 1.0, 3.0))
        self.index = StoreIndex()
        self.link = asyncio.Event()
        self.link.set()

    async def relay(self) -> None:
        while True:
            await self.link.wait()
            source = self._source.index()
            todo = copies(source, self.index)
            entry = next(iter((*(todo.first or ()), *todo.later)), None)
            if entry is None:
                self.index = StoreIndex(kept_entries(source, self.index)) if source.entries else self.index
                await asyncio.sleep(POLL_S)
                continue
            await asyncio.sleep(3 * ROUND_TRIP_S + entry.bytes / self._pace)
            if self.link.is_set():
                self.index = StoreIndex(kept_entries(self._source.index(), self.index, entry))

    async def fetch(self, held: int) -> int:
        """To the newest version that is here, at the pace of a store nearby. Raises Unreachable where no way leads there yet."""
        newest = self.index.newest
        edges = [entry.edge for entry in self.index.entries]
        walk = None if newest is None else cheapest(edges, held if held >= 0 else None, newest)
        if newest is None or walk is None:
            raise Unreachable("the region's store leads nowhere yet")
        await asyncio.sleep(sum(step.edge.bytes for step in walk) / BYTES_PER_S)
        return newest
