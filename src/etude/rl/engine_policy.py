"""The engine process as a policy that outlives it (promise 8): when the process dies, or its sampling thread does, the turns
in flight fail as our fault, the process is brought back, and turns asked meanwhile wait for it instead of failing too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.learn.engine.batching import BatchingClient
from etude.learn.engine.service import Result
from etude.rl.restarts import Lifeline, ProcessDied

CLIENT = "controller"


class EngineHandle(Protocol):
    """`engine.service.EngineService` across processes; every call raises ProcessDied when the process is gone."""

    async def submit_many(self, client: str, requests: list[tuple[int, Request]]) -> None: ...
    async def poll(self, client: str) -> list[tuple[int, Result]]: ...
    async def release_many(self, sessions: list[str]) -> None: ...
    async def stage(self, version: int) -> int: ...
    async def apply(self) -> int: ...
    async def stats(self) -> dict[str, float]: ...


class RemoteEnginePolicy:
    """A token policy over the engine's lifeline."""

    name = "engine"
    takes_tokens = True

    def __init__(self, engine: Lifeline[EngineHandle]) -> None:
        self._engine = engine
        self._client = BatchingClient(self._submit, self._poll, self._release)
        self.revival: asyncio.Task[None] | None = None  # the process is being brought back
        self.lost: BaseException | None = None  # it could not be

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError, or ProcessLost when the engine died more often than the bound allows."""
        if self.revival is not None:
            await asyncio.wait([self.revival])
        if self.lost is not None:
            raise self.lost
        return await self._client.complete(replace(request, messages=(), tools=()))  # the engine reads tokens only

    async def release(self, session_id: str) -> None:
        await self._client.release(session_id)

    def give_up(self, reason: str) -> None:
        """Turns in flight fail as our fault; its process stays as it is."""
        self._client.give_up(reason)

    async def close(self) -> None:
        if self.revival is not None:
            self.revival.cancel()
            await asyncio.wait([self.revival])
        await self._client.close()

    async def _submit(self, requests: list[tuple[int, Request]]) -> None:
        await self._watched(lambda engine: engine.submit_many(CLIENT, requests))

    async def _release(self, sessions: list[str]) -> None:
        await self._watched(lambda engine: engine.release_many(sessions))

    async def _poll(self) -> list[tuple[int, Result]]:
        generation = self._engine.generation
        results = await self._watched(lambda engine: engine.poll(CLIENT))
        failed = [result for _, result in results if isinstance(result, PolicyError) and result.infra]
        if failed:  # the process lives, its sampling thread does not
            self.bring_back(generation, str(failed[0]))
        return results

    async def _watched(self, call: Callable[[EngineHandle], Awaitable[Any]]) -> Any:
        generation = self._engine.generation
        try:
            return await call(self._engine.handle)
        except ProcessDied as death:
            self.bring_back(generation, str(death))
            raise

    def bring_back(self, generation: int, reason: str) -> None:
        """Somebody saw this life of the process end; `revival` is under way from now on."""
        if self.revival is None:
            self.revival = asyncio.create_task(self._engine.revive(generation, reason))
            self.revival.add_done_callback(self._back)

    def replace(self, undo: Callable[[str], None]) -> asyncio.Task[None]:
        """Its process is to restart although it is healthy (`Lifeline.renew`); raises nothing, `lost` tells."""
        self.revival = asyncio.create_task(self._engine.renew(undo))
        self.revival.add_done_callback(self._back)
        return self.revival

    def _back(self, revival: asyncio.Task[None]) -> None:
        self.revival = None
        if not revival.cancelled():
            self.lost = revival.exception()
