"""Opens the safest pool that works on this machine, found by making a sandbox and running a command in it."""

from __future__ import annotations

from etude.sandbox.local import LocalPool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings


async def open_pool(settings: SandboxSettings) -> SandboxPool:
    """Raises Unsupported with what was tried and the remedy."""
    return await LocalPool.open(settings)
