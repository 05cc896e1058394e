"""The client side of an engine in another process: a policy whose requests travel in lists.

Requests made within a few milliseconds go out as one `submit_many`; one long poll brings finished completions back, many at a
time. Both are given as coroutines, so this knows neither Ray nor sockets, and tests need neither.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion

SubmitMany = Callable[[list[tuple[int, Request]]], Awaitable[None]]
Poll = Callable[[], Awaitable[list[tuple[int, Completion | PolicyError]]]]
ReleaseMany = Callable[[list[str]], Awaitable[None]]

# Turns of a group end together within a few decode steps; waiting this long halves the calls and costs a fraction of a step.
GATHER_S = 0.003
LOOK_S = 1.0  # between two looks at whether the engine of an open request works


async def answered(
    answer: asyncio.Future[Completion], alive_at: Callable[[], float], on_alive: Callable[[], None] | None
) -> Completion:
    """The answer, or the error that it holds. Until then `on_alive` is called after each look that found a later sign of life of the engine
    (`alive_at`: when the last one was, in seconds of `time.monotonic`)."""
    seen_at = time.monotonic()
    try:
        while on_alive is not None and not answer.done():
            await asyncio.wait([answer], timeout=LOOK_S)
            if alive_at() > seen_at:
                seen_at = alive_at()
                on_alive()
        return await answer
    finally:
        answer.cancel()  # where the asker was cancelled: nothing may be set that nothing reads


class BatchingClient:
    """A token policy. Belongs to one event loop; `close` ends its poll."""

    takes_tokens = True

    def __init__(
        self,
        submit_many: SubmitMany,
        poll: Poll,
        release_many: ReleaseMany,
        *,
        name: str = "engine",
        gather_s: float = GATHER_S,
    ) -> None:
        self.name = name
        self._submit_many, self._poll, self._release_many = submit_many, poll, release_many
        self._gather_s = gather_s
        self._numbers = 0
        self._open: dict[int, asyncio.Future[Completion]] = {}
        self._heard_at = 0.0  # monotonic: when the engine last answered a poll
        self._outbox: list[tuple[int, Request]] = []
        self._leaving: list[str] = []
        self._sender: asyncio.Task[None] | None = None
        self._collector: asyncio.Task[None] | None = None

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError: the engine's own, or an infra fault if the engine cannot be reached. An engine that answers polls counts as one
        that works: whether its steps go on is for its owner to watch."""
        self._numbers += 1
        number = self._numbers
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        self._outbox.append((number, replace(request, on_alive=None)))  # no callback leaves the process
        self._wake()
        try:
            return await answered(answer, lambda: self._heard_at, request.on_alive)
        finally:
            self._open.pop(number, None)

    async def release(self, session_id: str) -> None:
        self._leaving.append(session_id)
        self._wake()

    def give_up(self, reason: str) -> None:
        """Open requests fail as infrastructure errors; answers that still arrive are dropped."""
        self._fail(PolicyError(reason))

    async def close(self) -> None:
        """Ends the exchange; open requests fail as infra faults."""
        tasks = [task for task in (self._sender, self._collector) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail(PolicyError("the engine's client was closed"))

    def _wake(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        if self._open and (self._collector is None or self._collector.done()):
            self._collector = asyncio.create_task(self._collect())

    async def _send(self) -> None:
        while self._outbox or self._leaving:
            await asyncio.sleep(self._gather_s)
            outbox = [(number, request) for number, request in self._outbox if number in self._open]
            self._outbox = []
            leaving, self._leaving = self._leaving, []
            try:
                if leaving:
                    await self._release_many(leaving)
                if outbox:
                    await self._submit_many(outbox)
            except Exception as error:  # noqa: BLE001 - a lost engine is every open request's infra fault
                self._fail(PolicyError(f"the engine cannot be reached: {type(error).__name__}: {error}"))

    async def _collect(self) -> None:
        while self._open:
            try:
                results = await self._poll()
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(PolicyError(f"the engine cannot be reached: {type(error).__name__}: {error}"))
                return
            self._heard_at = time.monotonic()
            for number, result in results:
                answer = self._open.get(number)
                if answer is None or answer.done():
                    continue  # its asker gave up
                if isinstance(result, PolicyError):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _fail(self, error: PolicyError) -> None:
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(error)
