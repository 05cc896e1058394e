"""One sandbox' door: takes connections from a listening socket, asks the policy, passes on what it allows.

Promises: everything that is not allowed by name is refused and recorded; a narrower policy cuts what it forbids at once, established or not
(`switch`); `close` cuts everything. The listener may be made anywhere, also inside a network namespace that has nothing else: the door only
accepts on it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

from etude.sandbox.egress.inner import Service
from etude.sandbox.egress.limits import DoorLimits
from etude.sandbox.egress.outside import Outside
from etude.sandbox.egress.pace import Pace
from etude.sandbox.egress.policy import Policy
from etude.sandbox.egress.record import Journal
from etude.sandbox.egress.visit import Visit, World


class Door:
    """Serves from `start` to `close`, on the running loop. It owns the listener. `services`: by the first word of the path."""

    def __init__(
        self,
        listener: socket.socket,
        policy: Policy,
        journal: Journal,
        *,
        services: Mapping[str, Service] | None = None,
        outside: Outside | None = None,
        limits: DoorLimits | None = None,
    ) -> None:
        self._listener = listener
        limits = limits or DoorLimits()
        pace, lookups = Pace(limits.requests_per_s), asyncio.Semaphore(limits.lookups)
        self._world = World(policy, journal, dict(services or {}), outside or Outside(), limits, pace, lookups)
        self._places = asyncio.Semaphore(limits.connections)
        self._visits: dict[asyncio.Task[None], Visit] = {}
        self._accepting: asyncio.Task[None] | None = None
        listener.setblocking(False)

    def start(self) -> None:
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def switch(self, policy: Policy, services: Mapping[str, Service] | None = None) -> None:
        """From now on this policy. What passes by the old one alone is cut before this returns."""
        self._world.policy, self._world.services = policy, dict(services or {})
        for visit in list(self._visits.values()):
            if not visit.permitted():
                visit.cut("cut: the policy has changed")

    async def close(self) -> None:
        """Cut everything, wait until it is gone, close the listener. Idempotent."""
        tasks = [*self._visits, *([self._accepting] if self._accepting else [])]
        if self._accepting is not None:
            self._accepting.cancel()
        for visit in list(self._visits.values()):
            visit.cut("cut: the door was closed")
        await asyncio.gather(*tasks, return_exceptions=True)
        self._accepting = None
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._places.acquire()
            try:
                peer, _ = await loop.sock_accept(self._listener)
            except OSError:
                self._places.release()
                await asyncio.sleep(0.1)  # out of descriptors, or the peer left: the queue keeps the others
                continue
            except asyncio.CancelledError:
                self._places.release()
                raise
            visit = Visit(self._world, peer)
            task = loop.create_task(visit.serve())
            self._visits[task] = visit
            visit.task = task
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        del self._visits[task]
        self._places.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a visit at the door of a sandbox failed", "exception": error, "task": task}
            )
