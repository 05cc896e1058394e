"""Sandboxes of hot kinds made before they are asked for. A claim only writes the spec's own files and sets its network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable

from etude.sandbox.errors import SandboxError
from etude.sandbox.fleet import warmth
from etude.sandbox.fleet.box import FleetSandbox
from etude.sandbox.fleet.warmth import WarmPlan
from etude.sandbox.spec import Network, SandboxSpec

_SWEEP_S = 10.0


class WarmPool:
    def __init__(self, plan: WarmPlan, make: Callable[[SandboxSpec], Awaitable[FleetSandbox]]) -> None:
        self._plan, self._make = plan, make
        self._idle: dict[Hashable, list[FleetSandbox]] = {}
        self._specs: dict[Hashable, SandboxSpec] = {}
        self._coming: dict[Hashable, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.claimed = 0

    def start(self) -> None:
        self._begin(self._sweep())

    async def claim(self, spec: SandboxSpec) -> FleetSandbox | None:
        """One that is ready, now this spec's; None: make one."""
        if not warmth.claimable(spec):
            return None
        kind, now = warmth.kind(spec), asyncio.get_running_loop().time()
        self._plan.asked(kind, now)
        self._specs[kind] = warmth.bare(spec)
        self._fill(kind)
        idle = self._idle.get(kind, [])
        while idle:
            box = idle.pop()
            if box.state != "running":
                continue
            self._fill(kind)
            if await self._dress(box, spec):
                self.claimed += 1
                return box
        return None

    def held(self) -> list[FleetSandbox]:
        return [box for idle in self._idle.values() for box in idle]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _dress(self, box: FleetSandbox, spec: SandboxSpec) -> bool:
        try:
            for path, data in spec.files.items():
                await box.write(path, data)
            if spec.network != Network(spec.network.mode):
                await box.set_network(spec.network)
        except (
            SandboxError
        ):  # it was not handed out yet: a fresh one is made instead, and says the same if it is the spec's fault
            await box.kill()
            return False
        box.spec = spec
        return True

    def _fill(self, kind: Hashable) -> None:
        wanted = self._plan.wanted(kind, asyncio.get_running_loop().time())
        have = len(self._idle.get(kind, ())) + self._coming.get(kind, 0)
        for _ in range(wanted - have):
            self._coming[kind] = self._coming.get(kind, 0) + 1
            self._begin(self._add(kind))

    async def _add(self, kind: Hashable) -> None:
        try:
            box = await self._make(self._specs[kind])
            self._idle.setdefault(kind, []).append(box)
        except SandboxError:
            return  # the next caller makes its own, and gets the reason if that fails
        finally:
            self._coming[kind] -= 1

    async def _sweep(self) -> None:
        """Kinds gone cold give their room back."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = asyncio.get_running_loop().time()
            for kind in list(self._idle):
                wanted = self._plan.wanted(kind, now)
                idle = self._idle[kind]
                surplus, self._idle[kind] = idle[wanted:], idle[:wanted]
                await asyncio.gather(*(box.kill() for box in surplus))
                if not self._idle[kind]:
                    del self._idle[kind]

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
