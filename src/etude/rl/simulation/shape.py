"""What is simulated, and how often things go wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

Order = Literal["fifo", "windowed", "greedy"]
WINDOWED = 2  # batches that may overtake, where the order is windowed


@dataclass(frozen=True)
class SimulationShape:
    """Times are seconds of made-up time. A rollout has 1 + Pareto turns (`tail`: the smaller, the heavier), each of `turn_s` on an idle
    engine and `tool_s` in its sandbox, both times log-normal. `faults`: the share of rollouts whose sandbox, engine answer or wire fails
    them; `deaths`: how often an engine or the trainer dies in the run, in addition to whole hosts."""

    rollouts: int = 4_096
    group_size: int = 8
    groups_per_step: int = 16
    max_staleness: int = 2
    slots: int = 256
    order: Order = "windowed"
    engines: int = 2
    standbys: int = 0
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
    hangs: int = 1  # of engines: they live and answer nothing
    host_deaths: int = 1
    save_every: int = 10
    anchor_every: int = 8
    regions: int = 0  # in addition to home, with `region_engines` each, behind links of their own
    region_engines: int = 1
    region_lag: int = 1
    link_share: float = 1.0  # of home's wire, about
    outages: int = 0  # of links, each of about `outage_s`
    outage_s: float = 600.0
    fleet: bool = True  # sandboxes come from the fleet's own code over fake hosts; else from nowhere, at no cost
    seed: int = 0

    @property
    def steps(self) -> int:
        return max(1, self.rollouts // (self.group_size * self.groups_per_step))

    @property
    def window(self) -> int | None:
        """As the setting `rl.window`."""
        return {"fifo": 1, "windowed": WINDOWED, "greedy": None}[self.order]


def draw_shape(seed: int) -> SimulationShape:
    """A small run of chance proportions, for searching through many seeds."""
    dice = random.Random(f"shape {seed}")
    per_step, size = dice.randint(1, 6), dice.randint(2, 6)
    shape = SimulationShape(
        rollouts=per_step * size * dice.randint(3, 8),
        group_size=size,
        groups_per_step=per_step,
        max_staleness=dice.randint(0, 3),
        slots=dice.choice((3, 8, 24, 64)),
        order=dice.choice(("fifo", "windowed", "greedy")),
        engines=dice.randint(1, 3),
        engine_turns=dice.choice((2, 8, 64)),
        hosts=dice.randint(1, 4),
        tail=dice.choice((0.9, 1.5, 3.0)),
        most_turns=dice.choice((4, 40)),
        train_s=dice.choice((5.0, 60.0)),
        sync_s=dice.choice((0.5, 10.0, 120.0)),
        faults=dice.choice((0.0, 0.01, 0.2)),
        deaths=dice.randint(0, 5),
        hangs=dice.randint(0, 2),
        host_deaths=dice.randint(0, 1),
        save_every=dice.randint(1, 5),
        anchor_every=dice.choice((1, 2, 25)),
        fleet=dice.random() < 0.5,
        standbys=dice.randint(0, 1),
        seed=seed,
    )
    if dice.random() < 0.5:
        return shape
    return replace(
        shape,
        regions=dice.randint(1, 2),
        region_engines=dice.randint(1, 2),
        region_lag=dice.randint(0, shape.max_staleness),
        link_share=dice.choice((0.02, 0.2, 1.0)),
        outages=dice.randint(0, 3),
        outage_s=dice.choice((10.0, 600.0, 5000.0)),
    )
