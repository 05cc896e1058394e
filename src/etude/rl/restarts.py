"""Bringing a dead process back, a bounded number of times (promise 8: its death is ours, never a rollout's)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from etude.learn.engine.settings import EngineSettings
from etude.rl.observer import RunObserver

Handle = TypeVar("Handle", bound=Any)
# Between two starts of a process that is begun again for ever.
FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 60.0


class ProcessLost(Exception):
    """A process died more often than the bound allows: the run stops and says so; run again to go on."""


class ProcessDied(Exception):
    """The process behind a handle is gone. Calls have no time limit: who hangs is found out by others (`engines`, `rank_group`)."""


class ProcessPlacer(Protocol):
    """Starts processes; `placement.RayPlaces` does it with Ray, tests in their own process."""

    engine: EngineSettings  # of the engines that are started from now on

    def start_engine(self, region: str = "") -> Any: ...
    def start_trainer(self) -> Any: ...

    def remember(self) -> None:
        """A process is ready: write down which ones run, so that the next start ends what a kill leaves."""
        ...


class Lifeline(Generic[Handle]):
    """Holds the handle of a process that may die, or be replaced. `generation` counts the lives; callers that saw one die ask for the next.

    Many callers may notice the same death at once: the first brings the process back, the others wait for it. Without a bound (None) it is
    begun again for ever, with pauses that double.
    """

    def __init__(
        self,
        name: str,
        spawn: Callable[[int], Awaitable[Handle]],
        max_restarts: int | None,
        observer: RunObserver,
    ) -> None:
        self.name = name
        self.generation = -1
        self.restarts = 0
        self._spawn = spawn
        self._max_restarts = max_restarts
        self._observer = observer
        self._handle: Handle | None = None
        self._lock = asyncio.Lock()

    @property
    def handle(self) -> Handle:
        if self._handle is None:
            raise RuntimeError(f"the {self.name} process was not started; call start() first")
        return self._handle

    @property
    def begun(self) -> bool:
        """Whether there is a handle: a first life is ready, or was."""
        return self._handle is not None

    async def start(self) -> None:
        """The first life, or, where the process dies before it is ready, the next. Raises ProcessLost beyond the bound."""
        self.generation = 0
        try:
            self._handle = await self._spawn(0)
        except ProcessDied as death:
            await self.revive(0, str(death))

    async def revive(self, dead: int, reason: str) -> None:
        """Life number `dead` is over: start the next one, unless somebody has. Raises ProcessLost beyond the bound."""
        async with self._lock:
            tries = 0
            while self.generation <= dead:
                if self._max_restarts is not None and self.restarts >= self._max_restarts:
                    raise ProcessLost(
                        f"the {self.name} process died {self.restarts + 1} times, the last time with: {reason}. "
                        "Nothing that was trained is lost: mend the cause and run again"
                    )
                self.restarts += 1
                if self._max_restarts is None:
                    await asyncio.sleep(min(MOST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries, 10)))
                    tries += 1
                self._observer.note(f"the {self.name} process died; starting it again (number {dead + 2}): {reason}")
                try:
                    await self._begin(dead + 1)
                except ProcessDied as death:  # while it loaded or trained again: one more of its deaths
                    reason = str(death)

    async def renew(self, undo: Callable[[str], None]) -> None:
        """Ends this life, well as it is, and begins the next, which counts as no restart. Where that dies before it is ready, `undo` hears
        why, and the one after is begun like any other. Raises ProcessLost beyond the bound."""
        async with self._lock:
            old = self.generation
            self._observer.note(f"the {self.name} process is replaced (number {old + 2})")
            try:
                return await self._begin(old + 1)
            except ProcessDied as death:
                reason = str(death)
        undo(reason)
        await self.revive(old, reason)

    async def _begin(self, generation: int) -> None:
        if self._handle is not None:
            self._handle.kill()  # whatever is left of the last life that was ready
        self._handle = await self._spawn(generation)
        self.generation = generation
