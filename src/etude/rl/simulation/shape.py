"""What is simulated, and how often things go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Order = Literal["fifo", "windowed", "greedy"]
WINDOWED = 2  # batches that may overtake, where the order is windowed


@dataclass(frozen=True)
class Shape:
    """Times are seconds of made-up time. A rollout has 1 + Pareto turns (`tail`: the smaller, the heavier), each of `turn_s` on an idle
    engine and `tool_s` in its sandbox, both times log-normal. `faults`: the share of rollouts whose sandbox, engine answer or wire fails
    them; `deaths`: how often an engine or the trainer dies in the run, whole hosts beside them."""

    rollouts: int = 4_096
    group_size: int = 8
    groups_per_step: int = 16
    max_staleness: int = 2
    slots: int = 256
    order: Order = "windowed"
    engines: int = 2
    engine_turns: int = 96  # turns that one engine runs at full speed; more of them share it
    hosts: int = 8
    tail: float = 1.5
    most_turns: int = 60
    turn_s: float = 8.0
    tool_s: float = 3.0
    train_s: float = 60.0
    sync_s: float = 10.0
    swap_s: float = 2.0
    faults: float = 0.01
    deaths: int = 2
    host_deaths: int = 1
    save_every: int = 10
    anchor_every: int = 8
    fleet: bool = True  # sandboxes come from the fleet's own code over fake hosts; else from nowhere, at no cost
    seed: int = 0

    @property
    def steps(self) -> int:
        return max(1, self.rollouts // (self.group_size * self.groups_per_step))

    @property
    def window(self) -> int | None:
        """As the setting `rl.window`."""
        return {"fifo": 1, "windowed": WINDOWED, "greedy": None}[self.order]
