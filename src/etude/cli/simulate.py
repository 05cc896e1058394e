"""`etude simulate`: predict throughput and staleness of an RL run from its settings, before a machine is rented for it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.settings_command import settings_command


class Order(StrEnum):
    """Which finished groups a batch may be taken from."""

    fifo = "fifo"
    windowed = "windowed"
    greedy = "greedy"


Regions = Annotated[
    int,
    typer.Option("--regions", min=0, help="Regions in addition to home, each with an engine behind a link of its own."),
]

Staleness = Annotated[
    list[int] | None,
    typer.Option(
        "--max-staleness",
        min=0,
        help="Staleness bound in policy versions, like rl.max_staleness; repeat the option to compare bounds.",
    ),
]
Orders = Annotated[
    list[Order] | None,
    typer.Option("--order", help="Order in which finished groups are trained; all three are simulated."),
]
Tail = Annotated[
    float, typer.Option("--tail", min=0.5, help="Pareto shape of turns per rollout; smaller means a heavier tail.")
]
Faults = Annotated[
    float,
    typer.Option("--faults", min=0.0, max=0.9, help="Share of rollouts that fail through an infrastructure error."),
]
RegionLag = Annotated[
    int, typer.Option("--region-lag", min=0, help="Policy versions that a region may be behind, like rl.region_lag.")
]


SimulateCommand = settings_command("--max-staleness", "--order", "--slots", "--engines", "--regions", "--seed")


def simulate(
    rollouts: Annotated[int, typer.Option(min=2, help="Rollouts of the run.")] = 4096,
    group_size: Annotated[int, typer.Option(min=2, help="Rollouts per group.")] = 8,
    groups_per_step: Annotated[int, typer.Option(min=1, help="Groups per training step.")] = 16,
    max_staleness: Staleness = None,
    order: Orders = None,
    slots: Annotated[int, typer.Option(min=1, help="Rollouts kept running at once.")] = 256,
    engines: Annotated[int, typer.Option(min=1, help="Replicas of the engine.")] = 2,
    engine_turns: Annotated[int, typer.Option(min=1, help="Turns that one engine runs at full speed.")] = 96,
    turn_s: Annotated[float, typer.Option(min=0.01, help="Median seconds of a turn on an idle engine.")] = 8.0,
    tool_s: Annotated[float, typer.Option(min=0.0, help="Median seconds of a tool call.")] = 3.0,
    train_s: Annotated[float, typer.Option(min=0.01, help="Median seconds of a training step.")] = 60.0,
    tail: Tail = 1.5,
    faults: Faults = 0.01,
    deaths: Annotated[int, typer.Option(min=0, help="Deaths of engines and trainer.")] = 2,
    hosts: Annotated[int, typer.Option(min=1, help="Hosts of sandboxes.")] = 8,
    regions: Regions = 0,
    region_lag: RegionLag = 1,
    outages: Annotated[int, typer.Option(min=0, help="Number of link outages, about ten minutes each.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the simulation.")] = 0,
    json: Json = False,
) -> Answer:
    """Simulate an RL run with the production scheduler on a virtual clock.

    Prints throughput, staleness and waiting times by order and staleness bound.
    """
    from etude.rl.simulation.shape import SimulationShape
    from etude.rl.simulation.simulate import simulate as run

    shape = SimulationShape(
        rollouts, group_size, groups_per_step, slots=slots, engines=engines, engine_turns=engine_turns, turn_s=turn_s, tool_s=tool_s,
        train_s=train_s, tail=tail, faults=faults, deaths=deaths, hosts=hosts, host_deaths=min(1, hosts - 1), seed=seed,
        regions=regions, region_lag=region_lag, outages=outages,
    )  # fmt: skip
    bounds, orders = max_staleness or [2], order or list(Order)
    found = [run(replace(shape, order=one.value, max_staleness=bound)) for bound in bounds for one in orders]
    return Answer({"runs": found}, "\n".join([HEAD, *map(_row, found)]))


HEAD = "order      bound  staleness  rollouts/h  trainer idle  held p50/p99 s  faults  restarts  real s"


def _row(one: dict[str, Any]) -> str:
    shape, stale, held = one["shape"], one["staleness"], one["held_s"]
    return (
        f"{shape['order']:<9}  {shape['max_staleness']:>5}  {stale['mean']:>5.2f} <={stale['max']}  {one['rollouts_per_h']:>10}  "
        f"{100 * one['trainer_idle']:>11.1f}%  {held['p50']:>6.0f} / {held['p99']:<6.0f}  {one['faults']:>6}  {one['restarts']:>8}  "
        f"{one['real_s']:>6.1f}"
    )
