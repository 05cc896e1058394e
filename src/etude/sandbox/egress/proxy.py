"""One sandbox' egress proxy: accepts connections, checks the allow-list, forwards what it allows.

Promises: everything that is not allowed by name is refused and recorded; a narrower policy cuts what it forbids at once, established or not
(`switch`); `close` cuts everything. The listener may be made anywhere, also inside a network namespace that has nothing else: the door only
accepts on it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

from etude.sandbox.egress.connection import ProxyConnection, ProxyState
from etude.sandbox.egress.decisions import DecisionLog
from etude.sandbox.egress.dialer import Dialer
from etude.sandbox.egress.limits import ProxyLimits, RequestRate
from etude.sandbox.egress.policy import AllowList
from etude.sandbox.egress.service import ProxyService


class EgressProxy:
    """Serves from `start` to `close`, on the running loop. It owns the listener. `services`: by the first word of the path."""

    def __init__(
        self,
        listener: socket.socket,
        policy: AllowList,
        journal: DecisionLog,
        *,
        services: Mapping[str, ProxyService] | None = None,
        dialer: Dialer | None = None,
        limits: ProxyLimits | None = None,
    ) -> None:
        self._listener = listener
        limits = limits or ProxyLimits()
        rate, lookups = RequestRate(limits.requests_per_s), asyncio.Semaphore(limits.lookups)
        self._state = ProxyState(policy, journal, dict(services or {}), dialer or Dialer(), limits, rate, lookups)
        self._places = asyncio.Semaphore(limits.connections)
        self._connections: dict[asyncio.Task[None], ProxyConnection] = {}
        self._accepting: asyncio.Task[None] | None = None
        listener.setblocking(False)

    def start(self) -> None:
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def switch(self, policy: AllowList, services: Mapping[str, ProxyService] | None = None) -> None:
        """From now on this policy. What passes by the old one alone is cut before this returns."""
        self._state.policy, self._state.services = policy, dict(services or {})
        for connection in list(self._connections.values()):
            if not connection.is_permitted():
                connection.cut("cut: the policy has changed")

    async def close(self) -> None:
        """Cut everything, wait until it is gone, close the listener. Idempotent."""
        tasks = [*self._connections, *([self._accepting] if self._accepting else [])]
        if self._accepting is not None:
            self._accepting.cancel()
        for connection in list(self._connections.values()):
            connection.cut("cut: the door was closed")
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
            connection = ProxyConnection(self._state, peer)
            task = loop.create_task(connection.serve())
            self._connections[task] = connection
            connection.task = task
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        self._places.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a visit at the door of a sandbox failed", "exception": error, "task": task}
            )
