"""Engines over processes faked in this one, and the messages to the trainer."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from recording import RecordingObserver

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion, SampledTokens
from etude.learn.engine.settings import EngineSettings
from etude.learn.weights.errors import Unreachable
from etude.rl.engines import READY, Engines
from etude.rl.restarts import ProcessDied
from etude.rl.settings import RegionSettings, RlSettings


class Process:
    """An engine process that answers with its version."""

    def __init__(self, number: int, region: str = "", world: World | None = None) -> None:
        self.number, self.region, self.world = number, region, world
        self.version = self.staged = -1
        self.dead = False

    async def stage(self, version: int | None = None) -> int:
        self._alive()
        if version is None:
            assert self.world is not None
            await self.world.link.wait()
            self._alive()
            version = self.world.there
            if version < 0:
                raise Unreachable("the store holds no version yet")
        self.staged = version
        return version

    async def apply(self) -> int:
        self._alive()
        self.version = self.staged
        return self.version

    async def stats(self) -> dict[str, float]:
        self._alive()
        return {"process": float(self.number)}

    def kill(self) -> None:
        self.dead = True

    def _alive(self) -> None:
        if self.dead:
            raise ProcessDied("killed")


class World:
    """`asked`: turns by replica."""

    def __init__(
        self,
        count: int = 2,
        standbys: int = 0,
        max_restarts: int = 3,
        regions: dict[str, int] | None = None,
        lag: int = 1,
        patience_s: float = 60.0,
    ) -> None:
        self.there = -1  # newest version in the stores of regions
        self.link = asyncio.Event()  # to them
        self.link.set()
        observer = RecordingObserver()
        self.said = observer.notes
        self.processes: list[Process] = []
        self.asked: Counter[int] = Counter()
        self.trainer_calls: list[tuple[Any, ...]] = []
        self.answering = asyncio.Event()  # else turns are in flight
        self.answering.set()
        self.broken = False  # what is started from now on dies as it loads
        changes = {"engines": count, "standbys": standbys, "max_restarts": max_restarts, "engine_silence_s": 60.0}
        changes |= {"region_lag": lag, "region_patience_s": patience_s}
        changes["regions"] = {name: RegionSettings(store=name, engines=size) for name, size in (regions or {}).items()}
        self.engine = EngineSettings()
        self.engines = Engines(RlSettings().model_copy(update=changes), self, self._ask, observer)
        for one in self.engines.replicas:
            one.client.complete = self._answers(one)  # type: ignore[method-assign]

    def remember(self) -> None:
        """Processes that are faked end with the test."""

    def start_trainer(self) -> None:
        """None is asked here."""

    def start_engine(self, region: str = "") -> Process:
        self.processes.append(Process(len(self.processes), region, self))
        self.processes[-1].dead = self.broken
        return self.processes[-1]

    async def _ask(self, *call: Any) -> None:
        self.trainer_calls.append(call)

    def _answers(self, one: Any) -> Any:
        async def complete(request: Request) -> Completion:
            self.asked[one.number] += 1
            if one.client.revival is not None:
                await one.client.revival
            process = one.lifeline.handle
            await self.answering.wait()
            process._alive()
            return Completion(tokens=SampledTokens([1], [0.0], [one.lifeline.handle.version]))

        return complete

    async def turn(self, session: str = "s") -> int:
        answer = await self.engines.policy.complete(Request(session, (), prompt_ids=(1,)))
        assert answer.tokens is not None
        return answer.tokens.versions[0]

    def serving(self) -> int:
        """The one replica that new turns go to, where there is one."""
        (number,) = (n for n in range(len(self.engines.replicas)) if self.engines._distance(n) == READY)
        return number
