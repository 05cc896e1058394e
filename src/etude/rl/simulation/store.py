"""A weight store made up: what is published at what size, over a wire that is slow and loses things; the ways through it are the real ones."""

from __future__ import annotations

import asyncio
import random

from etude.learn.weights.chain import Chain
from etude.learn.weights.path import Edge, cheapest, needed
from etude.learn.weights.store import IndexEntry, StoreIndex

ANCHOR_BYTES, DELTA_BYTES = 1000, 20
BYTES_PER_S = 100.0  # an anchor takes 10 s, a delta 0.2
KEEP_ANCHORS = 2
LOST = 0.01  # of all fetches: tried again


class MadeUpStore:
    """Edges by the real chain; `fetched` are the walks made, `refused` the versions that no receiver could reach."""

    def __init__(self, anchor_every: int, dice: random.Random) -> None:
        self._dice = dice
        self._anchor_every = anchor_every
        self.chain = Chain(anchor_every)
        self.edges: list[Edge] = []
        self.fetched_bytes = 0
        self.walks = 0

    def publish(self, version: int) -> int | None:
        """The bytes of the delta, None where there is none; a version that is there already stays as it is."""
        if self.chain.newest is not None and version <= self.chain.newest:
            return DELTA_BYTES
        plan = self.chain.plan(version)
        if plan.base is not None:
            self.edges.append(Edge(version, plan.base, DELTA_BYTES))
        if plan.anchor:
            self.edges.append(Edge(version, None, ANCHOR_BYTES))
        self.edges = needed(self.edges, KEEP_ANCHORS, {*self.chain.held, version})
        self.chain.on_published(plan)
        return None if plan.base is None else DELTA_BYTES

    def index(self) -> StoreIndex:
        """As a relay sees it."""
        return StoreIndex(
            tuple(IndexEntry(edge.version, edge.base, edge.bytes, 0, str(edge.version), "") for edge in self.edges)
        )

    def reopen(self) -> None:
        """The sender died: the next one goes on after the newest version, and knows of no receiver."""
        newest = self.chain.newest
        self.chain = Chain(self._anchor_every, base=newest, newest=newest)

    async def fetch(self, held: int, version: int) -> None:
        """The cheapest walk, at the wire's pace. Raises AssertionError where none is left: the chain broke its promise."""
        while True:
            walk = cheapest(self.edges, held if held >= 0 else None, version)
            assert walk is not None, f"no way leads from version {held} to {version}"
            size = sum(step.edge.bytes for step in walk)
            await asyncio.sleep(size / BYTES_PER_S)
            self.walks += 1
            self.fetched_bytes += size
            if self._dice.random() >= LOST:
                return
