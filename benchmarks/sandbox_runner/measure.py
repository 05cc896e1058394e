"""Memory and latency of the Python and the C command runner with many live sandboxes of the backend `local`.

    python benchmarks/sandbox_runner/measure.py --json benchmarks/sandbox_runner/result.json

Each round makes LIVE sandboxes of either runner, sums the PSS of all processes of the pool after each, then runs `true` in
random sandboxes, one command at a time, in turn with either runner. The order of the runners changes from round to round. Where
the machine can't make LIVE sandboxes, half as many are tried, and the result says so. Minutes; as root or as an ordinary user.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.pipeline.run.machine import machine
from etude.sandbox.errors import SandboxError
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.sandbox.speed.bench import quantile, summary

RUNNERS = {"python": SandboxSpec(warm_python=True), "c": SandboxSpec(warm_python=False)}
AT_ONCE = 8  # creates


@dataclass
class RunnerFigures:
    """What was measured of one runner, over all rounds."""

    pss_kib: list[float] = field(default_factory=list)  # per sandbox, one figure a round
    processes: list[float] = field(default_factory=list)  # per sandbox
    creates_per_s: list[float] = field(default_factory=list)
    true_ms: list[float] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            "pss_kib_per_sandbox": round(statistics.median(self.pss_kib), 1),
            "pss_kib_per_sandbox_by_round": [round(value, 1) for value in self.pss_kib],
            "processes_per_sandbox": round(statistics.median(self.processes), 3),
            "creates_per_s": round(statistics.median(self.creates_per_s), 1),
            "true_ms": summary(self.true_ms),
            "commands": len(self.true_ms),
        }


def descendants(parents: dict[int, int], root: int) -> set[int]:
    """All processes below `root`, by the parent of each process."""
    found: set[int] = set()
    new = {root}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def pool_memory() -> tuple[float, int]:
    """PSS in KiB and number of the processes below this one. A process that ends meanwhile does not count."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    total, count = 0.0, 0
    for pid in descendants(parents, os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
        count += 1
    return total, count


async def make(pool: SandboxPool, spec: SandboxSpec, count: int) -> list[Sandbox]:
    """All of them or an error; those that were made are then ended."""
    made: list[Sandbox] = []
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            made.append(await pool.create(spec))

    results = await asyncio.gather(*(one() for _ in range(count)), return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        await end(made)
        raise failures[0]
    return made


async def end(boxes: list[Sandbox]) -> None:
    await asyncio.gather(*(box.kill() for box in boxes))


async def measure_round(
    pool: SandboxPool, order: list[str], live: int, commands: int, figures: dict[str, RunnerFigures]
) -> None:
    boxes: dict[str, list[Sandbox]] = {}
    try:
        for runner in order:
            before_kib, before = pool_memory()
            start = time.perf_counter()
            boxes[runner] = await make(pool, RUNNERS[runner], live)
            figures[runner].creates_per_s.append(live / (time.perf_counter() - start))
            after_kib, after = pool_memory()
            figures[runner].pss_kib.append((after_kib - before_kib) / live)
            figures[runner].processes.append((after - before) / live)
        drawn = random.Random(0)
        for _ in range(commands):
            for runner in order:
                box = drawn.choice(boxes[runner])
                start = time.perf_counter()
                done = await box.run(["true"])
                figures[runner].true_ms.append(1e3 * (time.perf_counter() - start))
                if done.rc != 0:
                    raise RuntimeError(f"`true` ended with {done.rc} under runner {runner}: {done.err!r}")
    finally:
        for made in boxes.values():
            await end(made)


async def measure(live: int, rounds: int, commands: int) -> dict[str, Any]:
    """Raises SandboxError where not even one sandbox of each runner can be made."""
    settings = SandboxSettings(backend="local", max_live=2 * live + 16)
    pool = await open_pool(settings)
    loads = [os.getloadavg()[0]]
    try:
        about = pool.probe()
        if about.runner != "native":
            raise SystemExit(f"runner {about.runner!r} serves here: the C runner needs a static C compiler")
        figures = {runner: RunnerFigures() for runner in RUNNERS}
        refused: list[str] = []
        number = 0
        while number < rounds:
            order = [*RUNNERS] if number % 2 == 0 else [*reversed(RUNNERS)]
            print(f"round {number + 1} of {rounds}: {live} sandboxes of each runner", file=sys.stderr)
            try:
                await measure_round(pool, order, live, commands, figures)
            except SandboxError as error:
                if live == 1:
                    raise
                refused.append(f"{live} sandboxes of each runner: {error}")
                live, number, figures = live // 2, 0, {runner: RunnerFigures() for runner in RUNNERS}
                continue
            number += 1
            loads.append(os.getloadavg()[0])
    finally:
        await pool.close()
    ratio = quantile(figures["c"].true_ms, 0.5) / quantile(figures["python"].true_ms, 0.5)
    return {
        "machine": machine(),
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "limits": about.limits,
        "load_1m": [round(load, 1) for load in loads],
        "live_of_each_runner": live,
        "refused": refused,
        "rounds": rounds,
        "runners": {runner: found.document() for runner, found in figures.items()},
        "c_to_python_true_p50": round(ratio, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", type=int, default=500, help="Live sandboxes of each runner.")
    parser.add_argument("--rounds", type=int, default=4, help="Rounds; an even number gives each order equally often.")
    parser.add_argument("--commands", type=int, default=500, help="Commands of each runner in a round.")
    parser.add_argument("--json", type=Path, help="File for the result.")
    options = parser.parse_args()
    found = asyncio.run(measure(options.live, options.rounds, options.commands))
    text = json.dumps(found, indent=2) + "\n"
    print(text, end="")
    if options.json:
        options.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
