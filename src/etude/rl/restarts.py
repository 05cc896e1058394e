"""Bringing a dead process back, a bounded number of times (promise 8: its death is ours, never a rollout's)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

Handle = TypeVar("Handle", bound=Any)


class ProcessLost(Exception):
    """A process died more often than the bound allows: the run stops and says so; run again to go on."""


class ProcessDied(Exception):
    """The process behind a handle is gone. Calls have no time limit: who hangs is found out by others (`engines`, `rank_group`)."""


class Lifeline(Generic[Handle]):
    """Holds the handle of a process that may die. `generation` counts the lives; callers that saw one die ask for the next.

    Many callers may notice the same death at once: the first brings the process back, the others wait for it.
    """

    def __init__(self, name: str, spawn: Callable[[int], Awaitable[Handle]], max_restarts: int) -> None:
        self.name = name
        self.generation = -1
        self.restarts = 0
        self._spawn = spawn
        self._max_restarts = max_restarts
        self._handle: Handle | None = None
        self._lock = asyncio.Lock()

    @property
    def handle(self) -> Handle:
        if self._handle is None:
            raise RuntimeError(f"the {self.name} process was not started; call start() first")
        return self._handle

    async def start(self) -> None:
        """The first life, or, where the process dies before it is ready, the next. Raises ProcessLost beyond the bound."""
        self.generation = 0
        try:
            self._handle = await self._spawn(0)
        except ProcessDied as death:
            await self.revive(0, str(death))

    def end(self) -> None:
        """Whatever is left of the last life that was ready."""
        if self._handle is not None:
            self._handle.kill()

    async def revive(self, dead: int, reason: str) -> None:
        """Life number `dead` is over: start the next one, unless somebody has. Raises ProcessLost beyond the bound."""
        async with self._lock:
            while self.generation <= dead:
                if self.restarts >= self._max_restarts:
                    raise ProcessLost(
                        f"the {self.name} process died {self.restarts + 1} times, the last time with: {reason}. "
                        "Nothing that was trained is lost: mend the cause and run again"
                    )
                self.restarts += 1
                try:
                    self._handle = await self._spawn(dead + 1)
                except ProcessDied as death:  # while it loaded or trained again: one more of its deaths
                    reason = str(death)
                else:
                    self.generation = dead + 1
