"""The engine behind a process border, as an object whose methods a remote caller invokes (a Ray actor holds one).

Calls carry lists in both directions: one remote call per turn would cost more than the turn. A client submits what it gathered
and collects what is finished by a long poll; the numbers of its requests are its own. Weights are fetched, decoded and checked (`stage`) while the
engine serves, and applied between two steps (`apply`). The decoded state is
separate from the model: deltas start from bits that nothing else changes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import SampledTokens
from etude.learn.engine.adapter_merger import AdapterMerger
from etude.learn.engine.core import EngineCore
from etude.learn.engine.mailbox import Mailbox, Result
from etude.learn.weights.receiver import ReceivedState, Receiver
from etude.learn.weights.store import WeightStore

# The engine's thread: runs the core's loop, takes requests from anywhere, hands completions back through callbacks.
#
# Everything that touches the core happens in this thread, between two of its steps: submissions, aborts, releases, swaps. A
# call made from outside is queued and answered by a future. If a step fails, the engine is dead: every request in it, and every
# later one, fails as an infrastructure error (promise 8), so that the engine's owner restarts it.

# Tokens of streams are delivered at intervals, since each delivery takes the interpreter from the engine (0.3 ms of Python, and two changes of
# thread): the shortest interval, and how many deliveries a second all streams have together. 40 pieces of text a second look continuous.
DELIVERY_S, DELIVERIES_PER_S = 0.025, 500.0

T = TypeVar("T")


@dataclass
class _Listener:
    """The receiver of a request's tokens as they are sampled, and how many it received."""

    on_tokens: Callable[[SampledTokens], None]
    delivered: int = 0


def leave_cores_to_engine() -> None:
    """For a process that samples alone, before it loads the model: products of its other threads use one core.

    Otherwise loading starts OpenMP threads that stay, and each product of the engine's own threads costs more next to them (SmolLM2, two threads: a
    step of 8 sessions 175 to 203 ms instead of 148 to 157, of 32 sessions 274 to 329 instead of 246 to 269).
    """
    torch.set_num_threads(1)


class EngineThread:
    """Owns `core` from `start` to `close`. Use as a context manager."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._deliver: dict[int, Callable[[Result], None]] = {}  # by ticket
        self._listeners: dict[int, _Listener] = {}  # by ticket, only for requests that are streamed
        self._dead: PolicyError | None = None
        self._stopping = False
        self.stepped_at = time.monotonic()  # when the last step ended
        self._next_delivery_at = 0.0  # monotonic
        self._next_step_at = 0.0  # monotonic; keeps the steps of a thin batch apart
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> EngineThread:
        self._thread.start()
        return self

    def __enter__(self) -> EngineThread:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._dead is None and self._thread.is_alive()

    def submit(
        self,
        request: Request,
        deliver: Callable[[Result], None],
        on_tokens: Callable[[SampledTokens], None] | None = None,
    ) -> Future[int]:
        """`deliver` is called once, in the engine's thread, with the completion or the error. The future gives the ticket.
        `on_tokens` receives, there too, what was sampled since it was last called, the first token at once; not what the last step
        sampled. It must not raise."""
        future: Future[int] = Future()
        self._post(lambda: self._enter(request, deliver, future, on_tokens), deliver)
        return future

    def submit_many(self, requests: list[tuple[Request, Callable[[Result], None]]]) -> list[Future[int]]:
        """The same for several at once, which then are prefilled together."""
        futures: list[Future[int]] = [Future() for _ in requests]

        def enter() -> None:
            for (request, deliver), future in zip(requests, futures, strict=True):
                self._enter(request, deliver, future)

        self._post(enter, lambda error: [deliver(error) for _, deliver in requests])
        return futures

    def abort(self, ticket: int) -> None:
        """Ends a request; its completion so far is delivered. Does nothing if it is over."""

        def end() -> None:
            completion = self._core.abort(ticket)
            if completion is not None:
                self._listeners.pop(ticket, None)
                self._deliver.pop(ticket)(completion)

        self._post(end)

    def release(self, sessions: list[str]) -> None:
        """These sessions will not continue."""
        self._post(lambda: [self._core.release(session) for session in sessions])

    def call(self, function: Callable[[EngineCore], T]) -> Future[T]:
        """Runs `function(core)` between two steps: swaps, readings. Its error is the future's."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function(self._core))
            except Exception as error:  # noqa: BLE001 - the caller's to handle, the engine goes on
                future.set_exception(error)

        self._post(run, future.set_exception)
        return future

    def close(self) -> None:
        """Stops after the current step; requests still running fail as infra faults. Idempotent."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _post(self, call: Callable[[], Any], refuse: Callable[[PolicyError], Any] | None = None) -> None:
        with self._wake:
            dead = self._dead or (PolicyError("the engine is closed") if self._stopping else None)
            if dead is None:
                self._calls.append(call)
                self._wake.notify()
        if dead is not None and refuse is not None:
            refuse(dead)

    def _enter(
        self,
        request: Request,
        deliver: Callable[[Result], None],
        future: Future[int],
        on_tokens: Callable[[SampledTokens], None] | None = None,
    ) -> None:
        try:
            ticket = self._core.submit(request)
        except PolicyError as error:
            deliver(error)
            future.set_exception(error)
            return
        self._deliver[ticket] = deliver
        if on_tokens is not None:
            self._listeners[ticket] = _Listener(on_tokens)
        future.set_result(ticket)

    def _step(self) -> None:
        for ticket, completion in self._core.step():
            self._listeners.pop(ticket, None)
            self._deliver.pop(ticket)(completion)
        self.stepped_at = time.monotonic()
        if self._listeners:
            self._deliver_tokens(self.stepped_at)

    def _deliver_tokens(self, now_s: float) -> None:
        """All streams at once, because one change of thread then serves them all; between two deliveries only first tokens."""
        due = now_s >= self._next_delivery_at
        if due:
            self._next_delivery_at = now_s + max(DELIVERY_S, len(self._listeners) / DELIVERIES_PER_S)
        for ticket, listener in self._listeners.items():
            if listener.delivered and not due:
                continue
            tokens = self._core.sampled(ticket, listener.delivered)
            if tokens is not None and tokens.ids:
                listener.delivered += len(tokens.ids)
                listener.on_tokens(tokens)

    def _run(self) -> None:
        torch.set_num_threads(self._core.settings.threads)
        error = PolicyError("the engine is closed")
        try:
            while self._next():
                self._step()
                self._next_step_at = time.monotonic() + self._core.settings.tick_s
        except Exception as failure:  # noqa: BLE001 - whatever it is, the requests must not wait for ever
            error = PolicyError(f"the engine failed: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        with self._wake:
            self._dead = error
            left, self._calls = list(self._calls), deque()
        for call in left:  # their requests enter only to fail with the rest
            call()
        for deliver in self._deliver.values():
            deliver(error)
        self._deliver.clear()

    def _next(self) -> bool:
        """Runs queued calls; waits while there is nothing to do, or too little of it. False when it is time to stop."""
        while True:
            with self._wake:
                while not (self._calls or self._stopping) and (wait_s := self._wait_s()) != 0.0:
                    self._wake.wait(wait_s)
                if self._stopping:
                    return False
                calls, self._calls = self._calls, deque()
            for call in calls:
                call()
            if self._wait_s() == 0.0:
                return True

    def _wait_s(self) -> float | None:
        """Seconds until the next step is due: 0 is now, None is not before a request comes."""
        if not self._core.busy:
            return None
        if self._core.in_flight >= self._core.settings.company:
            return 0.0
        return max(0.0, self._next_step_at - time.monotonic())


class EngineService:
    """Thread-safe: `poll` and `stage` block and should run in other threads than `submit_many` (a threaded actor)."""

    def __init__(self, core: EngineCore, store: WeightStore | None = None, merge: AdapterMerger | None = None) -> None:
        """`store`: where weights come from; `merge`: of the base that its states are adapters of."""
        self._thread = EngineThread(core).start()
        self._follower = WeightFollower(store, self._thread, core.version, merge) if store is not None else None
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

    def __init__(
        self, store: WeightStore, thread: EngineThread, version: int, merge: AdapterMerger | None = None
    ) -> None:
        self._receiver = Receiver(store)
        self._merge = merge
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
                state = held.state if self._merge is None else self._merge(held.state)
                self._thread.call(lambda core: core.swap(state, held.version)).result()
                self._served = held.version
            return self._served
