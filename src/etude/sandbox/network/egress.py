"""Egress of one sandbox (`SandboxEgress`), and what a pool shares (`PoolEgress`): the log, the opened networks, the package indexes.

The proxy runs on the pool's event loop, accepts on the listener that the inside made, and ends with the sandbox.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from dataclasses import replace
from pathlib import Path

from etude.sandbox.egress.decisions import Decision, DecisionFile, DecisionLog
from etude.sandbox.egress.dialer import Dialer
from etude.sandbox.egress.errors import BadRule
from etude.sandbox.egress.packages import discovery
from etude.sandbox.egress.packages.cache import FileCache
from etude.sandbox.egress.packages.npm import NpmIndex, NpmService
from etude.sandbox.egress.packages.pip import PipIndex, PipService
from etude.sandbox.egress.packages.upstream import IndexUpstream
from etude.sandbox.egress.policy import AllowList
from etude.sandbox.egress.proxy import EgressProxy
from etude.sandbox.egress.service import ProxyService
from etude.sandbox.errors import InfraError, Unsupported, UserError
from etude.sandbox.network import rules
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, PackageRule


class SandboxEgress:
    """`network` is the policy in force now."""

    def __init__(self, proxy: EgressProxy, journal: DecisionLog, indexes: PackageIndexes, network: Network) -> None:
        self._index_service, self._journal, self._indexes = proxy, journal, indexes
        self.network = network

    @property
    def decisions(self) -> list[Decision]:
        return list(self._journal.decisions)

    async def switch(self, network: Network) -> None:
        """What is no longer allowed is cut before anything is awaited; packages of an index that has to be found first come after.
        Raises UserError, and nothing has changed; Unsupported, and those packages stay closed."""
        rules.require(network)
        policy, ready = rules.policy(network), self._indexes.ready(network)
        at_once = replace(network, packages=tuple(rule for rule in network.packages if rule.kind in ready))
        self._index_service.switch(policy, ready)
        self.network = at_once
        if at_once == network:
            return
        services = await self._indexes.services(network)
        if self.network is at_once:  # else somebody has switched since
            self._index_service.switch(policy, services)
            self.network = network

    def shut(self) -> None:
        """Cut everything now; `close` clears up."""
        self._index_service.switch(AllowList())

    async def close(self) -> None:
        await self._index_service.close()


class PoolEgress:
    def __init__(self, settings: SandboxSettings) -> None:
        """Raises UserError for settings that can't be."""
        try:
            opened = tuple(ipaddress.ip_network(text) for text in settings.egress_networks)
        except ValueError as problem:
            raise UserError(f"sandbox.egress_networks: {problem}; write networks such as 10.1.0.0/16") from None
        self._dialer = Dialer(opened=opened)
        self._path = Path(settings.egress_log) if settings.egress_log else None
        self._file: DecisionFile | None = None
        self._indexes = PackageIndexes(Path(settings.egress_cache) if settings.egress_cache else _own_cache())

    async def open(self, name: str, network: Network, listener: int) -> SandboxEgress:
        """`listener` is duplicated at once. Raises Unsupported, UserError, InfraError; then nothing is left."""
        opened = _listening(listener)
        try:
            services = await self._indexes.services(network)
            journal = DecisionLog(name, self._log())
            proxy = EgressProxy(opened, rules.policy(network), journal, services=services, dialer=self._dialer)
        except BaseException:
            opened.close()
            raise
        proxy.start()
        return SandboxEgress(proxy, journal, self._indexes, network)

    async def close(self) -> None:
        """After the gates themselves."""
        await self._indexes.close()
        if self._file is not None:
            self._file.close()

    def _log(self) -> DecisionFile:
        if self._file is None:
            try:
                self._file = DecisionFile(self._path)
            except OSError as error:
                raise UserError(f"sandbox.egress_log={str(self._path)!r} can't be written: {error.strerror}") from None
        return self._file


def _listening(descriptor: int) -> socket.socket:
    """What the inside granted, if it is as it should be."""
    listener = socket.socket(fileno=os.dup(descriptor))
    try:
        good = listener.family == socket.AF_INET and listener.type == socket.SOCK_STREAM
        if good and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return listener
    except OSError:
        good = False
    listener.close()
    raise InfraError("the inside granted no listening TCP socket as its way out")


def _own_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "etude" / "packages"


Index = PipIndex | NpmIndex


class PackageIndexes:
    """The machine's configured package indexes. A pool discovers each index once, when a rule first needs it."""

    def __init__(self, cache: Path) -> None:
        self._cache = FileCache(cache)
        self._found: dict[str, asyncio.Task[Index]] = {}

    def ready(self, network: Network) -> dict[str, ProxyService]:
        """The services that need no waiting."""
        services: dict[str, ProxyService] = {}
        for rule in network.packages:
            task = self._found.get(rule.kind)
            if task is not None and task.done() and not task.cancelled() and task.exception() is None:
                services[rule.kind] = _index_service(task.result(), rule)
        return services

    async def services(self, network: Network) -> dict[str, ProxyService]:
        """All of them. Raises Unsupported where this machine's tool has no index."""
        return {rule.kind: _index_service(await self._index(rule.kind), rule) for rule in network.packages}

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
            configured = await asyncio.to_thread(discovery.pip if kind == "pip" else discovery.npm)
        except BadRule as problem:
            raise Unsupported(f"network: no door to {kind}'s packages here: {problem}") from None
        made = PipIndex if kind == "pip" else NpmIndex
        return made(IndexUpstream(configured), self._cache)


def _index_service(index: Index, rule: PackageRule) -> ProxyService:
    named = rules.named_rule(rule)
    return PipService(index, named) if isinstance(index, PipIndex) else NpmService(index, named, f"{rules.URL}/npm/")
