"""What the operations of a fake sandbox cost in time: log-normal around a median, drawn from a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Medians in seconds; 0: no time passes. The defaults cost nothing; `MEASURED` is our namespaces on two shared cores."""

    create_s: float = 0.0
    command_s: float = 0.0
    file_s: float = 0.0
    snapshot_s: float = 0.0
    kill_s: float = 0.0
    spread: float = 0.5  # standard deviation of the logarithm: p99 is then 3.2 times the median

    def of(self, operation: str, normal: float) -> float:
        """`normal`: a draw from the standard normal distribution."""
        return getattr(self, f"{operation}_s") * math.exp(self.spread * normal)


MEASURED = Costs(create_s=0.015, command_s=0.002, file_s=0.001, snapshot_s=0.01, kill_s=0.005)
