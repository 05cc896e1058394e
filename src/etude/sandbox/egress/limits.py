"""What one sandbox may cost its door."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DoorLimits:
    """Beyond `connections` the next ones wait in the listener's queue."""

    connections: int = 32  # pip opens 10, npm 15
    requests_per_s: float = 300.0  # each costs the host a third of a millisecond; twice as many at once
    lookups: int = 2  # names being resolved at a time: slow ones must not take the threads from other sandboxes
    head_bytes: int = 16384
    head_s: float = 10.0  # for a whole head, however it trickles
    idle_s: float = 120.0  # without a byte in either direction
