"""The allow-list: which hosts and ports a sandbox may speak to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from etude.sandbox.egress import names
from etude.sandbox.egress.refused import BadRule, Refused

_WEB = (80, 443)  # what a rule without a port means


@dataclass(frozen=True)
class Rule:
    """One entry. `below`: the host and everything under it."""

    host: str
    below: bool = False
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """`example.org`, `.example.org` (it and everything below), either with `:port`. Raises BadRule."""
        host, colon, port = text.partition(":")
        below = host.startswith(".")
        try:
            if "*" in host:
                raise Refused(400, "write .example.org for a host and everything below it")
            return cls(names.host_name(host.removeprefix(".")), below, names.port_number(port) if colon else None)
        except Refused as problem:
            raise BadRule(
                f"allow-list entry {text!r}: {problem.reason}; give a host name such as example.org, .example.org or example.org:8443"
            ) from None

    def covers(self, host: str, port: int) -> bool:
        named = host == self.host or (self.below and host.endswith(f".{self.host}"))
        return named and (port in _WEB if self.port is None else port == self.port)


@dataclass(frozen=True)
class Policy:
    """No rules: nothing is allowed."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, hosts: Iterable[str]) -> Policy:
        """Raises BadRule."""
        return cls(tuple(Rule.parse(host) for host in hosts))

    def allows(self, host: str, port: int) -> bool:
        return any(rule.covers(host, port) for rule in self.rules)
