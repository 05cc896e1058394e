"""The engine behind a process border, as an object whose methods a remote caller invokes (a Ray actor holds one).

Calls carry lists in both directions: one remote call per turn would cost more than the turn. A client submits what it gathered
and collects what is finished by a long poll; the numbers of its requests are its own. Weights are fetched, decoded and checked (`stage`) while the
engine serves, and applied between two steps (`apply`). The decoded state is
separate from the model: deltas start from bits that nothing else changes.
"""

from __future__ import annotations

import threading

from etude.agent.policy.protocol import Request
from etude.learn.engine.core import EngineCore
from etude.learn.engine.mailbox import Mailbox, Result
from etude.learn.engine.thread import EngineThread
from etude.learn.weights.receiver import ReceivedState, Receiver
from etude.learn.weights.store import WeightStore


class EngineService:
    """Thread-safe: `poll` and `stage` block and should run in other threads than `submit_many` (a threaded actor)."""

    def __init__(self, core: EngineCore, store: WeightStore | None = None) -> None:
        self._thread = EngineThread(core).start()
        self._follower = WeightFollower(store, self._thread, core.version) if store is not None else None
        self._mailbox = Mailbox(lambda: not self._thread.alive)

    def submit_many(self, client: str, requests: list[tuple[int, Request]]) -> None:
        """Takes requests under the client's own numbers; refused ones come back by `poll` too."""
        self._thread.submit_many(
            [(request, lambda result, n=number: self._mailbox.put(client, n, result)) for number, request in requests]
        )

    def poll(self, client: str, timeout_s: float = 10.0) -> list[tuple[int, Result]]:
        """Results of the client's requests since the last poll; waits until there are some or the time is over."""
        return self._mailbox.collect(client, timeout_s)

    def release_many(self, sessions: list[str]) -> None:
        self._thread.release(sessions)

    def stage(self, version: int | None = None) -> int:
        """Fetches and checks weights (the newest, or `version`) while the engine serves; the version now staged."""
        return self._weights().stage(version)

    def apply(self) -> int:
        """Swaps the staged weights in between two steps; the version now served: this is the acknowledgement."""
        return self._weights().apply()

    def stats(self) -> dict[str, float]:
        reading = self._thread.call(lambda core: {**core.stats.reading(), "version": core.version}).result()
        refused = 0 if self._follower is None else len(self._follower.refused)
        return reading | {"refused_files": float(refused)}

    def close(self) -> None:
        self._thread.close()

    def _weights(self) -> WeightFollower:
        if self._follower is None:
            raise ValueError("this engine follows no weight store; give EngineService one")
        return self._follower


class WeightFollower:
    """The receiving end of the weight sync for one engine; `version` is the one that the engine was built with."""

    def __init__(self, store: WeightStore, thread: EngineThread, version: int) -> None:
        self._receiver = Receiver(store)
        self._thread = thread
        self._served = version
        self._held: ReceivedState | None = None  # the state last staged
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
