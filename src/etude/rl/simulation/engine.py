"""An engine made up: turns take their time, more the more of them there are; it swaps weights, and it can die."""

from __future__ import annotations

import asyncio
import math
import random

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion, SampledTokens, Usage
from etude.learn.engine.service import Result
from etude.rl.restarts import ProcessDied
from etude.rl.simulation.region import MadeUpRegion
from etude.rl.simulation.shape import SimulationShape
from etude.rl.simulation.store import MadeUpStore


class MadeUpEngine:
    """`rl.engine_policy.EngineHandle`. Every call of a dead one raises ProcessDied, those that wait in it too; one that hangs answers none
    until somebody ends it."""

    def __init__(
        self, shape: SimulationShape, store: MadeUpStore, dice: random.Random, region: MadeUpRegion | None = None
    ) -> None:
        """`region`: it sees that one's store alone, and answers nothing while the link to it is lost."""
        self._shape, self._store, self._dice, self.region = shape, store, dice, region
        self.turns = 0
        self._version = -1
        self._staged = -1
        self._running = 0
        self._paused_s = 0.0  # by all swaps so far
        self._done: list[tuple[int, Result]] = []
        self._news = asyncio.Event()
        self._turns: set[asyncio.Task[None]] = set()
        self._died = asyncio.get_running_loop().create_future()
        self._hangs = False
        self.busy_s = 0.0

    async def submit_many(self, client: str, requests: list[tuple[int, Request]]) -> None:
        await self._live()
        for number, request in requests:
            task = asyncio.create_task(self._turn(number, request))
            self._turns.add(task)
            task.add_done_callback(self._turns.discard)

    async def poll(self, client: str) -> list[tuple[int, Result]]:
        await self._live()
        if not self._done:
            self._news.clear()
            await self._news.wait()
            await self._live()
        found, self._done = self._done, []
        return found

    async def release_many(self, sessions: list[str]) -> None:
        await self._live()

    async def stage(self, version: int | None = None) -> int:
        """Fetches what leads from its own version to this one (the newest of its region), while it works."""
        await self._live()
        if self.region is not None:
            version = await self.region.fetch(self._version)
        else:
            assert version is not None
            await self._store.fetch(self._version, version)
        await self._live()
        self._staged = version
        return version

    async def apply(self) -> int:
        """Pauses all turns for as long as a swap takes; their keys and values stay."""
        await self._live()
        self._paused_s += self._shape.swap_s
        await asyncio.sleep(self._shape.swap_s)
        await self._live()
        self._version = self._staged
        return self._version

    async def stats(self) -> dict[str, float]:
        await self._live()
        return {"decode_s": self.busy_s}

    def die(self) -> None:
        """As by SIGKILL: whatever runs in it is gone, and callers that wait for it get an error."""
        if not self._died.done():
            self._died.set_result(None)
            for turn in self._turns:
                turn.cancel()
            self._news.set()

    kill = die

    def hang(self) -> None:
        """It lives, and gives no answer any more."""
        self._hangs = True
        self._news.set()

    async def _live(self) -> None:
        if self._hangs:
            await asyncio.shield(self._died)
        if self.region is not None and not self.region.link.is_set():
            back = asyncio.ensure_future(self.region.link.wait())
            await asyncio.wait([back, self._died], return_when=asyncio.FIRST_COMPLETED)
            back.cancel()
        if self._died.done():
            raise ProcessDied("made to die")

    async def _turn(self, number: int, request: Request) -> None:
        shape = self._shape
        began, paused_s = self._version, self._paused_s
        self._running += 1
        try:
            crowd = max(1.0, self._running / shape.engine_turns)
            took_s = shape.turn_s * crowd * math.exp(self._dice.gauss(0, 0.5))
            await asyncio.sleep(took_s)
            while paused_s < self._paused_s:
                pause_s, paused_s = self._paused_s - paused_s, self._paused_s
                await asyncio.sleep(pause_s)
        finally:
            self._running -= 1
        self.busy_s += took_s / max(1, self._running + 1)
        self.turns += 1
        tokens = SampledTokens([1, 2], [-0.5, -0.5], [began, self._version])
        self._done.append((number, Completion(tokens=tokens, usage=Usage(output_tokens=2, seconds=took_s))))
        self._news.set()
