"""The machine's own package indexes, behind doors: each asked for once in a pool, when a rule first needs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from etude.sandbox.egress.inner import Service
from etude.sandbox.egress.packages import asking
from etude.sandbox.egress.packages.cache import FileCache
from etude.sandbox.egress.packages.npm import NpmDoor, NpmIndex
from etude.sandbox.egress.packages.pip import PipDoor, PipIndex
from etude.sandbox.egress.packages.upstream import Upstream
from etude.sandbox.egress.refused import BadRule
from etude.sandbox.errors import Unsupported
from etude.sandbox.network import rules
from etude.sandbox.spec import Network, PackageRule

Index = PipIndex | NpmIndex


class Indexes:
    def __init__(self, cache: Path) -> None:
        self._cache = FileCache(cache)
        self._found: dict[str, asyncio.Task[Index]] = {}

    def ready(self, network: Network) -> dict[str, Service]:
        """The services that need no waiting."""
        services: dict[str, Service] = {}
        for rule in network.packages:
            task = self._found.get(rule.kind)
            if task is not None and task.done() and not task.cancelled() and task.exception() is None:
                services[rule.kind] = _door(task.result(), rule)
        return services

    async def services(self, network: Network) -> dict[str, Service]:
        """All of them. Raises Unsupported where this machine's tool has no index."""
        return {rule.kind: _door(await self._index(rule.kind), rule) for rule in network.packages}

    async def close(self) -> None:
        for task in self._found.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().upstream.close()
            else:
                task.cancel()
        self._found.clear()

    async def _index(self, kind: str) -> Index:
        task = self._found.get(kind)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._found[kind] = asyncio.ensure_future(self._ask(kind))
        return await asyncio.shield(task)

    async def _ask(self, kind: str) -> Index:
        try:
            configured = await asyncio.to_thread(asking.pip if kind == "pip" else asking.npm)
        except BadRule as problem:
            raise Unsupported(f"network: no door to {kind}'s packages here: {problem}") from None
        made = PipIndex if kind == "pip" else NpmIndex
        return made(Upstream(configured), self._cache)


def _door(index: Index, rule: PackageRule) -> Service:
    named = rules.named(rule)
    return PipDoor(index, named) if isinstance(index, PipIndex) else NpmDoor(index, named, f"{rules.URL}/npm/")
