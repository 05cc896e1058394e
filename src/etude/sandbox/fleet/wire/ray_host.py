"""Hosts as Ray actors, one on every machine of a cluster. The only module that imports ray.

The actor is asynchronous: one process, one event loop, thousands of requests at once. It dies with the fleet's own process (Ray ends the
actors of a driver that is gone), and its sandboxes with it (the end of their control sockets).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from etude.sandbox.errors import InfraError, Unsupported
from etude.sandbox.fleet.demand import HostFacts
from etude.sandbox.fleet.errors import HostLost
from etude.sandbox.fleet.host import LocalHost
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.wire.link import Answer
from etude.sandbox.fleet.wire.remote import RemoteHost
from etude.sandbox.fleet.wire.server import HostServer
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings

_AT_ONCE = 10_000  # requests: each running command may be one that waits


class HostActor:
    """One machine's pool behind a `HostServer`. `open` first."""

    def __init__(self, name: str, sandbox: SandboxSettings, settings: FleetSettings) -> None:
        self._name, self._sandbox, self._settings = name, sandbox, settings
        self._server: HostServer | None = None

    async def open(self) -> str:
        """Nothing, or why this machine can hold no sandboxes."""
        try:
            pool = await open_pool(self._sandbox)
        except InfraError as error:
            return str(error)
        facts = facts_of_this_machine(self._settings, self._sandbox, pool.probe())
        self._pool = pool
        self._server = HostServer(LocalHost(self._name, pool, facts))
        return ""

    async def ask(self, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> Answer:
        if self._server is None:
            return False, InfraError(f"host {self._name} is not open")
        return await self._server.ask(method, *args, **named)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._pool.close()


class RayLink:
    """To a host's actor. Where its process has ended, the next heartbeat begins another, which holds nothing of the dead one's; on a machine
    that is gone for good none begins, and heartbeats stay out."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin = begin
        self._actor = begin()
        self._gone = False
        self._coming: asyncio.Task[None] | None = None

    async def open(self) -> str:
        """Nothing, or why this machine can hold no sandboxes."""
        try:
            return await self._actor.open.remote()
        except RayActorError as error:
            return f"its actor is gone: {error}"

    async def ask(self, method: str, *args: Any, **named: Any) -> Answer:
        if self._gone:
            await self._back(method)
        actor = self._actor
        try:
            return await actor.ask.remote(method, args, named)
        except RayActorError as error:
            self._gone = self._gone or actor is self._actor
            raise HostLost(f"its actor is gone: {error}") from None
        except RayError as error:
            raise InfraError(f"Ray could not carry {method}: {error}") from error

    async def close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
        try:
            await self._actor.close.remote()
        except RayActorError:
            return
        finally:
            ray.kill(self._actor)

    async def _back(self, method: str) -> None:
        """Raises HostLost while there is no other."""
        if method != "beat":
            raise HostLost("its actor is gone; a heartbeat begins another")
        if self._coming is None or self._coming.done():
            self._coming = asyncio.create_task(self._again())
        await asyncio.shield(
            self._coming
        )  # a start may take longer than a heartbeat has time: then the next one waits for it

    async def _again(self) -> None:
        self._actor = self._begin()
        if reason := await self.open():
            raise HostLost(reason)
        self._gone = False


async def ray_hosts(settings: FleetSettings, sandbox: SandboxSettings) -> list[tuple[RemoteHost, RayLink]]:
    """A host on every living machine. Raises Unsupported, with each machine's reason, where none can hold sandboxes."""
    if not ray.is_initialized():
        _join(settings.address)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    limits = SandboxSettings.model_validate(
        sandbox.model_dump()
        | {"max_live": settings.max_live}
        | ({"max_running": settings.max_running} if settings.max_running else {})
    )
    found = await asyncio.gather(*(_open(node, settings, limits) for node in nodes))
    hosts = [one for one in found if not isinstance(one, str)]
    if not hosts:
        raise Unsupported(f"no machine of the Ray cluster can hold sandboxes: {'; '.join(map(str, found))}")
    return hosts


def _join(address: str) -> None:
    try:
        ray.init(address=address)
    except ConnectionError as error:
        raise Unsupported(
            f"fleet.address={address!r}: no Ray cluster answers ({error}); start one with `ray start --head`, or leave fleet.hosts empty"
        ) from None


async def _open(
    node: dict[str, Any], settings: FleetSettings, limits: SandboxSettings
) -> tuple[RemoteHost, RayLink] | str:
    name = f"{node['NodeManagerHostname']}-{node['NodeID'][:6]}"
    place = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
    options = {"num_cpus": 0, "max_concurrency": _AT_ONCE, "max_restarts": 0, "scheduling_strategy": place}
    actor: Any = ray.remote(HostActor)
    link = RayLink(lambda: actor.options(**options).remote(name, limits, settings))
    reason = await link.open()
    if not reason:
        return RemoteHost(name, link), link
    await link.close()
    return f"{name}: {reason}"


def facts_of_this_machine(settings: FleetSettings, sandbox: SandboxSettings, capabilities: Any) -> HostFacts:
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    return HostFacts(
        memory_mb=memory_mb * settings.memory_share,
        cpus=(os.cpu_count() or 1) * settings.cpu_share,
        max_live=settings.max_live,
        max_running=sandbox.max_running,
        creates_per_s=settings.creates_per_s,
        capabilities=capabilities,
    )
