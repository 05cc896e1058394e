"""What one sandbox may cost its door."""

from __future__ import annotations

from dataclasses import dataclass


class RequestRate:
    """A token bucket for one sandbox' requests: `per_s` on average, bursts of twice that number. Pure."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._tokens, self._last_s = 2 * per_s, 0.0

    def wait_s(self, now_s: float) -> float:
        """Take a token; returns how long to wait before using it."""
        self._tokens = min(2 * self._per_s, self._tokens + (now_s - self._last_s) * self._per_s)
        self._last_s = now_s
        self._tokens -= 1
        return max(0.0, -self._tokens / self._per_s)


@dataclass(frozen=True)
class ProxyLimits:
    """Beyond `connections` the next ones wait in the listener's queue."""

    connections: int = 32  # pip opens 10, npm 15
    requests_per_s: float = 300.0  # each costs the host a third of a millisecond; twice as many at once
    lookups: int = 2  # names being resolved at a time: slow ones must not take the threads from other sandboxes
    head_bytes: int = 16384
    head_s: float = 10.0  # for a whole head, however it trickles
    idle_s: float = 120.0  # without a byte in either direction
