"""`etude sandbox bench`: measure the speed of sandboxes, compared with fork and exec and with other tools in the same run."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.sandbox import flags
from etude.core.events.stopping import run_async

# Targets of the project on a quiet machine of two cores; a figure that misses its target says so.
AT_MOST_MS = {"create_ms": 15.0, "exec_ms": 2.0, "fork_ms": 25.0, "fork8_ms": 120.0, "kill_ms": 200.0}
AT_LEAST = {"creates_per_s": 80.0, "live": 500.0, "exec_per_s": 400.0, "stream_mb_s": 150.0}
IDLE_MIB = 1.5


def bench(
    backend: flags.Backend = "auto",
    rounds: Annotated[int, typer.Option("--rounds", min=5, help="Repetitions of each serial measurement.")] = 60,
    live: Annotated[int, typer.Option("--live", min=8, help="Sandboxes that live at once.")] = 500,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Measure podman, runc and bubblewrap too.")] = True,
    json: Json = False,
) -> Answer:
    """Measure: birth, command, death, forks, many at once, streams; interleaved, medians and 99th percentiles."""
    from etude.sandbox.speed.bench import bench as measure

    settings = flags.settings(backend).model_copy(update={"max_running": 16, "max_live": live + 16})
    found = run_async(measure(settings, rounds=rounds, live=live, with_peers=peers, say=_say))
    return Answer(found, _table(found))


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text} …", end="", file=sys.stderr, flush=True)


def _table(found: dict[str, Any]) -> str:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    lines = [
        f"back end {found['backend']}, runner {found['runner']}, {found['user']} user, {found['cores']} cores,"
        f" load {found['load_before']}; {found['limits']}"
    ]
    for key in ("fork_exec_ms", "warm_ms", *AT_MOST_MS):
        if found.get(key) is None:
            lines.append(f"{key:14s} not measured: no snapshots here")
            continue
        lines.append(
            f"{key:14s} p50 {found[key]['p50']:8.2f}  p99 {found[key]['p99']:8.2f}{_aim(found[key]['p50'], AT_MOST_MS.get(key))}"
        )
    for key, least in AT_LEAST.items():
        lines.append(f"{key:14s}     {found[key]:8.1f}{'' if found[key] >= least else f'   target >= {least:g}'}")
    lines.append(f"{'idle_mib':14s}     {found['idle_mib']:8.2f}{_aim(found['idle_mib'], IDLE_MIB)}")
    for name, row in found["peers"].items():
        lines.append(f"{name:14s} " + (row.get("reason") or _row(row)))
    return "\n".join(lines)


def _aim(value: float, most: float | None) -> str:
    return "" if most is None or value <= most else f"   target <= {most:g}"


def _row(row: dict[str, Any]) -> str:
    return (
        f"create {row['create_ms']['p50']:.1f} ms ({row['create_ratio']:g} times ours),"
        f" exec {row['exec_ms']['p50']:.1f} ms ({row['exec_ratio']:g} times ours)"
    )
