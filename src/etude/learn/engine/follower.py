"""Keeps an engine at the newest weights of a store: stage (fetch, decode, check) while it serves, apply between two steps.

The decoded state is held beside the model, never inside it: deltas start from bits that nobody else writes to.
"""

from __future__ import annotations

import threading

from etude.learn.engine.thread import EngineThread
from etude.learn.weights.receiver import Received, Receiver
from etude.learn.weights.store import WeightStore


class WeightFollower:
    """The receiving end of the weight sync for one engine; `version` is what the engine was built with."""

    def __init__(self, store: WeightStore, thread: EngineThread, version: int) -> None:
        self._receiver = Receiver(store)
        self._thread = thread
        self._served = version
        self._held: Received | None = None  # the state last staged
        self.refused: list[str] = []  # broken files of the store that were walked around
        self._lock = threading.Lock()

    def stage(self, goal: int | None = None) -> int:
        """Brings the held state to version `goal` (the newest by default). Raises WeightsError and keeps the old one."""
        with self._lock:
            held = self._held
            if held is None:
                self._held = self._receiver.catch_up(goal=goal)
            else:
                self._held = self._receiver.catch_up(held.state, held.version, goal=goal)
            self.refused += self._held.refused
            return self._held.version

    def apply(self) -> int:
        """Swaps the staged state in; returns the version served from the next token on, to be acknowledged.

        Raises ValueError if the weights are another model's; the engine then goes on with what it has.
        """
        with self._lock:
            held = self._held
            if held is not None and held.version != self._served:
                self._thread.call(lambda core: core.swap(held.state, held.version)).result()
                self._served = held.version
            return self._served
