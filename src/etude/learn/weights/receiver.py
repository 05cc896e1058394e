"""The receiving side: from whatever it holds to the newest version, bit-identical or refused (promise 7).

`catch_up` fetches and checks while the engine serves; nothing it returns is written to later, and what the caller holds is
never touched. Shards are fetched and applied side by side. A broken file on the way is named in `refused` and walked around
if an anchor allows, else its error is raised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from etude.learn.weights.codec import decode
from etude.learn.weights.errors import (
    BadStore,
    ForeignFormat,
    LayoutMismatch,
    MissingShard,
    Unreachable,
    WeightsError,
    WrongBase,
)
from etude.learn.weights.path import Edge, PathStep, cheapest
from etude.learn.weights.state import State, state_digest
from etude.learn.weights.store import StoreIndex, WeightStore

# Shards fetched, checked and applied at once.
WORKERS = 4
# How often the store may be tidied under our feet (its index is then a newer one) before we give up: a slow walk against a
# fast trainer meets it once or twice.
REREADS = 3


@dataclass(frozen=True)
class ReceivedState:
    """A state and what it took to get there."""

    state: dict[str, Tensor]
    version: int
    walked: tuple[str, ...] = ()  # names of the anchors and deltas applied, "~" before one that was undone
    bytes: int = 0
    refused: tuple[str, ...] = field(default=())  # errors of files that were walked around


class Receiver:
    """Reads one store; holds no state of its own."""

    def __init__(self, store: WeightStore, *, workers: int = WORKERS) -> None:
        self.store = store
        self._workers = workers

    def catch_up(
        self, state: State | None = None, version: int | None = None, *, goal: int | None = None
    ) -> ReceivedState:
        """From `state` at `version` (or from nothing) to version `goal`, by default the newest.

        Raises Unreachable if the store leads there in no way, or the error of the file that prevents it; BadStore,
        ForeignFormat if the store itself can't be read.
        """
        index = self.store.index()
        for _ in range(REREADS):
            try:
                return self._from(index, state, version, goal)
            except MissingShard:
                before, index = index, self.store.index()
                if index.serial == before.serial:
                    raise
        return self._from(index, state, version, goal)

    def _from(self, index: StoreIndex, state: State | None, version: int | None, goal: int | None) -> ReceivedState:
        target = index.newest if goal is None else goal
        if target is None or index.digest(target) is None:
            raise Unreachable(f"{self.store.url} holds no version {'at all' if target is None else target} yet")
        if state is not None and version is not None and version == target:
            if state_digest(state) == index.digest(target):
                return ReceivedState(dict(state), target)
            state = None  # that number, other bits: a course that was given up
        return self._catch_up(index, target, state, None if state is None else version)

    def _catch_up(self, index: StoreIndex, target: int, state: State | None, version: int | None) -> ReceivedState:
        edges = [entry.edge for entry in index.entries]
        refused: list[WeightsError] = []
        while True:
            walk = cheapest(edges, version, target)
            if walk is None:
                nowhere = Unreachable(f"no anchor in {self.store.url} leads to version {target}")
                raise refused[0] if refused else nowhere
            reached = self._walk(walk, state, index)
            if isinstance(reached, dict):
                names = tuple(("~" if step.rewind else "") + step.edge.name for step in walk)
                cost = sum(step.edge.bytes for step in walk)
                return ReceivedState(reached, target, names, cost, tuple(str(error) for error in refused))
            edge, error = reached
            refused.append(error)
            if isinstance(error, WrongBase | LayoutMismatch) and version is not None:
                state, version = None, None  # what is at hand is not what it is called
            else:
                edges.remove(edge)

    def _walk(
        self, walk: list[PathStep], state: State | None, index: StoreIndex
    ) -> dict[str, Tensor] | tuple[Edge, WeightsError]:
        for step in walk:
            try:
                manifest = self.store.manifest(index.entry(step.edge))
                state = decode(
                    manifest, partial(self.store.shard, manifest), state, rewind=step.rewind, workers=self._workers
                )
            except (BadStore, ForeignFormat):
                raise  # no way around leads through the same store
            except WeightsError as error:
                return step.edge, error
        assert state is not None
        return dict(state)
