"""What a fake sandbox needs of the pool that holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from etude.sandbox.errors import SandboxError
from etude.sandbox.fake.alarms import Alarms
from etude.sandbox.fake.command import Program
from etude.sandbox.fake.faults import Faults
from etude.sandbox.fake.store import LayerShelf
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import Network, SandboxSpec, SnapshotRef


class World(Protocol):
    faults: Faults
    shelf: LayerShelf
    lifetimes: Alarms
    running: asyncio.Semaphore
    programs: Mapping[str, Program]

    def cost(self, operation: str) -> float: ...
    def require_network(self, network: Network) -> None: ...
    def forget(self, name: str) -> None: ...
    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1) -> list[Sandbox | SandboxError]: ...
