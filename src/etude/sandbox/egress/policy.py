"""The allow-list: which hosts and ports a sandbox may speak to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from etude.sandbox.egress import targets
from etude.sandbox.egress.errors import BadRule, RequestRefused

_WEB = (80, 443)  # what a rule without a port means


@dataclass(frozen=True)
class AllowRule:
    """One entry. `below`: the host and everything under it."""

    host: str
    below: bool = False
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> AllowRule:
        """`example.org`, `.example.org` (it and everything below), either with `:port`. Raises BadRule."""
        host, colon, port = text.partition(":")
        below = host.startswith(".")
        try:
            if "*" in host:
                raise RequestRefused(400, "write .example.org for a host and everything below it")
            return cls(targets.host_name(host.removeprefix(".")), below, targets.port_number(port) if colon else None)
        except RequestRefused as problem:
            raise BadRule(
                f"allow-list entry {text!r}: {problem.reason}; give a host name such as example.org, .example.org or example.org:8443"
            ) from None

    def covers(self, host: str, port: int) -> bool:
        named = host == self.host or (self.below and host.endswith(f".{self.host}"))
        return named and (port in _WEB if self.port is None else port == self.port)


@dataclass(frozen=True)
class AllowList:
    """No rules: nothing is allowed."""

    rules: tuple[AllowRule, ...] = ()

    @classmethod
    def parse(cls, hosts: Iterable[str]) -> AllowList:
        """Raises BadRule."""
        return cls(tuple(AllowRule.parse(host) for host in hosts))

    def allows(self, host: str, port: int) -> bool:
        return any(rule.covers(host, port) for rule in self.rules)
