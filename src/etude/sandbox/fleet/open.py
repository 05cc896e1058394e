"""The door of this room: the pool that the settings ask for, this machine's own or a fleet's."""

from __future__ import annotations

from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings


async def open_sandboxes(settings: FleetSettings, sandbox: SandboxSettings) -> SandboxPool:
    """Raises Unsupported with what was tried and the remedy."""
    if not settings.hosts:
        return await open_pool(sandbox)
    from etude.sandbox.fleet.wire.ray_host import ray_hosts  # takes a second to import, and only a fleet needs it

    hosts = await ray_hosts(settings, sandbox)
    fleet = await Fleet.open([host for host, _ in hosts], settings)
    fleet.after_close = [link.close for _, link in hosts]
    return fleet
