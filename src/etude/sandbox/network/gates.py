"""The way out of one sandbox (`Gate`), and what those of a pool share (`Gates`): the log, the opened networks, the package indexes.

The door runs on the pool's own event loop and accepts on the listener that was made inside; it dies with the sandbox.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import replace
from pathlib import Path

from etude.sandbox.egress.door import Door
from etude.sandbox.egress.outside import Outside
from etude.sandbox.egress.policy import Policy
from etude.sandbox.egress.record import Decision, DecisionFile, Journal
from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.network import rules
from etude.sandbox.network.indexes import Indexes
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network


class Gate:
    """`network` is what is in force now."""

    def __init__(self, door: Door, journal: Journal, indexes: Indexes, network: Network) -> None:
        self._door, self._journal, self._indexes = door, journal, indexes
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
        self._door.switch(policy, ready)
        self.network = at_once
        if at_once == network:
            return
        services = await self._indexes.services(network)
        if self.network is at_once:  # else somebody has switched since
            self._door.switch(policy, services)
            self.network = network

    def shut(self) -> None:
        """Cut everything now; `close` clears up."""
        self._door.switch(Policy())

    async def close(self) -> None:
        await self._door.close()


class Gates:
    def __init__(self, settings: SandboxSettings) -> None:
        """Raises UserError for settings that can't be."""
        try:
            opened = tuple(ipaddress.ip_network(text) for text in settings.egress_networks)
        except ValueError as problem:
            raise UserError(f"sandbox.egress_networks: {problem}; write networks such as 10.1.0.0/16") from None
        self._outside = Outside(opened=opened)
        self._path = Path(settings.egress_log) if settings.egress_log else None
        self._file: DecisionFile | None = None
        self._indexes = Indexes(Path(settings.egress_cache) if settings.egress_cache else _own_cache())

    async def open(self, name: str, network: Network, listener: int) -> Gate:
        """`listener` is duplicated at once. Raises Unsupported, UserError, InfraError; then nothing is left."""
        opened = _listening(listener)
        try:
            services = await self._indexes.services(network)
            journal = Journal(name, self._log())
            door = Door(opened, rules.policy(network), journal, services=services, outside=self._outside)
        except BaseException:
            opened.close()
            raise
        door.start()
        return Gate(door, journal, self._indexes, network)

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
    """What the inside granted, if it is what it should be."""
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
