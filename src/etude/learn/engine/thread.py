"""The engine's thread: runs the core's loop, takes requests from anywhere, hands completions back through callbacks.

Everything that touches the core happens in this thread, between two of its steps: submissions, aborts, releases, swaps. A
call made from outside is queued and answered by a future. If a step fails, the engine is dead: every request in it, and every
later one, fails as an infrastructure error (promise 8), so that the engine's owner restarts it.
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
from etude.learn.engine.core import EngineCore
from etude.learn.engine.mailbox import Result

T = TypeVar("T")


@dataclass
class _Listener:
    """The receiver of a request's tokens as they are sampled, and how many it received."""

    on_tokens: Callable[[list[int]], None]
    delivered: int = 0


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
        self, request: Request, deliver: Callable[[Result], None], on_tokens: Callable[[list[int]], None] | None = None
    ) -> Future[int]:
        """`deliver` is called once, in the engine's thread, with the completion or the error. The future gives the ticket.
        `on_tokens` receives, there too, what each step except the last sampled; it must not raise."""
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
        on_tokens: Callable[[list[int]], None] | None = None,
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
        for ticket, listener in self._listeners.items():
            if ids := self._core.sampled(ticket, listener.delivered):
                listener.delivered += len(ids)
                listener.on_tokens(ids)

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
