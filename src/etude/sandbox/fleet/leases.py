"""Who is alive: a host that hasn't been heard of for LEASE_S is lost. Pure: every method takes the (monotonic) time."""

from __future__ import annotations

HEARTBEAT_S = 10.0
LEASE_S = 60.0  # six heartbeats: a machine that swaps for half a minute keeps its sandboxes


class Leases:
    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def renew(self, host: str, now_s: float) -> None:
        self._until_s[host] = now_s + LEASE_S

    def end(self, host: str) -> None:
        self._until_s.pop(host, None)

    def over(self, host: str, now_s: float) -> bool:
        """False for a host that has none: it is not ours to lose."""
        return now_s >= self._until_s.get(host, now_s + 1)
