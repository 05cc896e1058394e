"""The engine's thread as the event loop uses it: answers in steps, sessions by prompt, a bounded queue.

The engine computes in its own thread. Its callbacks reach the event loop through one queue: one wake-up carries all that a decode step
delivers. A request whose prompt extends an earlier prompt takes over that session, so the engine computes only the new tokens. Other
prompts that begin alike share their common beginning inside the engine.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion, SampledTokens
from etude.learn.serve.request import RefusedRequest

Result = Completion | PolicyError
# Seconds that a client is asked to wait when the queue is full: an answer of a hundred tokens takes about as long.
RETRY_AFTER_S = 2


class SamplingThread(Protocol):
    """What the client needs of `EngineThread`."""

    @property
    def alive(self) -> bool: ...

    def submit(
        self,
        request: Request,
        deliver: Callable[[Result], None],
        on_tokens: Callable[[SampledTokens], None] | None = None,
    ) -> Future[int]: ...

    def abort(self, ticket: int) -> None: ...

    def release(self, sessions: list[str]) -> None: ...


class LoopCalls:
    """Calls from other threads, run on the event loop. One wake-up runs all that arrived."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._scheduled = False

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._calls.append((callback, arguments))
        if not self._scheduled and not self._loop.is_closed():
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._scheduled = False  # before the calls are read: a call that arrives later schedules another run
        while self._calls:
            callback, arguments = self._calls.popleft()
            callback(*arguments)


class PromptSessions:
    """Idle sessions by the prompt that they last answered, at most `limit`. Pure."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._idle: OrderedDict[str, tuple[int, ...]] = OrderedDict()  # least recently used first
        self._number = 0
        self._prefix = uuid.uuid4().hex[:8]  # one engine may have several clients

    def take(self, prompt: tuple[int, ...]) -> str:
        """The session whose prompt is the longest that `prompt` extends, or a new one."""
        best = max(
            (name for name, held in self._idle.items() if _extends(prompt, held)),
            key=lambda name: len(self._idle[name]),
            default=None,
        )
        if best is not None:
            del self._idle[best]
            return best
        self._number += 1
        return f"serve-{self._prefix}-{self._number}"

    def park(self, session: str, prompt: tuple[int, ...]) -> list[str]:
        """The session is idle. Returns the sessions that are forgotten for it."""
        self._idle[session] = prompt
        return [self._idle.popitem(last=False)[0] for _ in range(len(self._idle) - self._limit)]


def _extends(prompt: tuple[int, ...], held: tuple[int, ...]) -> bool:
    count = len(held)
    return len(prompt) > count and prompt[count - 1] == held[-1] and prompt[:count] == held


@dataclass
class _Running:
    """One request in the engine."""

    session: str
    prompt: tuple[int, ...]
    ticket: Future[int] | None = None
    over: bool = False


class Generations:
    """The answers of one HTTP request, by their index."""

    def __init__(self, client: EngineClient, running: list[_Running]) -> None:
        self._client = client
        self._running = running
        self._news: asyncio.Queue[tuple[int, SampledTokens | Result]] = asyncio.Queue()

    async def events(self) -> AsyncIterator[tuple[int, SampledTokens | Completion]]:
        """What is sampled, then for each index its completion, until all are over. Raises PolicyError."""
        left = len(self._running)
        while left:
            index, item = await self._news.get()
            if isinstance(item, PolicyError):
                raise item
            left -= isinstance(item, Completion)
            yield index, item

    def abort(self, index: int) -> None:
        """Ends one answer; its completion follows. Does nothing if it is over."""
        running = self._running[index]
        if not running.over and running.ticket is not None:
            self._client.abort(running.ticket)

    def abort_all(self) -> None:
        for index in range(len(self._running)):
            self.abort(index)

    def put(self, index: int, item: SampledTokens | Result) -> None:
        self._news.put_nowait((index, item))


class EngineClient:
    """Belongs to one event loop. `sessions` answers are computed at once, `waiting` more may wait."""

    def __init__(self, thread: SamplingThread, *, sessions: int, waiting: int) -> None:
        self._thread = thread
        self._calls = LoopCalls(asyncio.get_running_loop())
        self._sessions = PromptSessions(sessions)
        self._limit = sessions + waiting
        self.in_flight = 0

    @property
    def alive(self) -> bool:
        return self._thread.alive

    def start(self, requests: Sequence[Request], *, listens: bool) -> Generations:
        """Submits the requests; their session ids are chosen here. `listens`: tokens arrive as they are sampled. Raises
        RefusedRequest if the queue is full."""
        if self.in_flight + len(requests) > self._limit:
            raise RefusedRequest(
                f"{self.in_flight} answers are in progress or waiting and {self._limit} fit; repeat the request later",
                status=429, code="queue_full", headers={"Retry-After": str(RETRY_AFTER_S)},
            )  # fmt: skip
        running = [_Running(self._sessions.take(request.prompt_ids), request.prompt_ids) for request in requests]
        generations = Generations(self, running)
        self.in_flight += len(requests)
        for index, (request, own) in enumerate(zip(requests, running, strict=True)):
            self._submit(generations, index, request, own, listens)
        return generations

    def abort(self, ticket: Future[int]) -> None:
        def end(done: Future[int]) -> None:
            if done.exception() is None:
                self._thread.abort(done.result())

        ticket.add_done_callback(end)

    def _submit(self, generations: Generations, index: int, request: Request, own: _Running, listens: bool) -> None:
        post = self._calls.post
        named = Request(
            session_id=own.session, messages=(), prompt_ids=request.prompt_ids, stop_ids=request.stop_ids,
            max_tokens=request.max_tokens, temperature=request.temperature, seed=request.seed, extra=request.extra,
        )  # fmt: skip
        own.ticket = self._thread.submit(
            named,
            lambda result: post(self._end, generations, index, own, result),
            (lambda tokens: post(generations.put, index, tokens)) if listens else None,
        )

    def _end(self, generations: Generations, index: int, own: _Running, result: Result) -> None:
        own.over = True
        self.in_flight -= 1
        if isinstance(result, PolicyError) or result.problem:
            self._thread.release([own.session])
        elif forgotten := self._sessions.park(own.session, own.prompt):
            self._thread.release(forgotten)
        generations.put(index, result)
