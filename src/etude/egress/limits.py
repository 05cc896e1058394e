"""What one sandbox may cost its door."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DoorLimits:
    """Beyond `connections` the next ones wait in the listener's queue."""

    connections: int = 64
    head_bytes: int = 16384
    head_s: float = 10.0  # for a whole head, however it trickles
    idle_s: float = 120.0  # without a byte in either direction
