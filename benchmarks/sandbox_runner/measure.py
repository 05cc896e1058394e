"""Memory and latency of sandboxes with and without a warm interpreter, with many live ones of the backend `local`.

    python benchmarks/sandbox_runner/measure.py --json benchmarks/sandbox_runner/result.json

Each round makes LIVE sandboxes of either kind, sums the PSS of all processes of the pool after each, then runs `true` in
random sandboxes, one command at a time, in turn with either kind, and a warm Python program after each pair. The order of the kinds
changes from round to round. Where the machine can't make LIVE sandboxes, half as many are tried, and the result says so. Minutes; as
root or as an ordinary user.
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
from etude.sandbox.speed.bench import summary

KINDS = {"warm": SandboxSpec(warm_python=True), "cold": SandboxSpec(warm_python=False)}
PROGRAM = ["python", "-c", "print(1)"]
AT_ONCE = 8  # creates


@dataclass
class KindFigures:
    """What was measured of one kind of sandbox, over all rounds."""

    pss_kib: list[float] = field(default_factory=list)  # per sandbox, one figure a round
    processes: list[float] = field(default_factory=list)  # per sandbox
    creates_per_s: list[float] = field(default_factory=list)
    true_ms: list[float] = field(default_factory=list)
    warm_run_ms: list[float] = field(default_factory=list)  # only where there is an interpreter

    def document(self) -> dict[str, Any]:
        return {
            "pss_kib_per_sandbox": round(statistics.median(self.pss_kib), 1),
            "pss_kib_per_sandbox_by_round": [round(value, 1) for value in self.pss_kib],
            "processes_per_sandbox": round(statistics.median(self.processes), 3),
            "creates_per_s": round(statistics.median(self.creates_per_s), 1),
            "true_ms": summary(self.true_ms),
            "warm_run_ms": summary(self.warm_run_ms) if self.warm_run_ms else None,
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


async def timed(box: Sandbox, argv: list[str], warm: bool) -> float:
    """Milliseconds of one command. Raises RuntimeError where it fails."""
    start = time.perf_counter()
    done = await box.run(argv, warm=warm)
    if done.rc != 0:
        raise RuntimeError(f"{argv} ended with {done.rc} (warm: {warm}): {done.err!r}")
    return 1e3 * (time.perf_counter() - start)


async def measure_round(
    pool: SandboxPool, order: list[str], live: int, commands: int, figures: dict[str, KindFigures]
) -> None:
    boxes: dict[str, list[Sandbox]] = {}
    try:
        for kind in order:
            before_kib, before = pool_memory()
            start = time.perf_counter()
            boxes[kind] = await make(pool, KINDS[kind], live)
            figures[kind].creates_per_s.append(live / (time.perf_counter() - start))
            after_kib, after = pool_memory()
            figures[kind].pss_kib.append((after_kib - before_kib) / live)
            figures[kind].processes.append((after - before) / live)
        drawn = random.Random(0)
        for _ in range(commands):
            for kind in order:
                box = drawn.choice(boxes[kind])
                figures[kind].true_ms.append(await timed(box, ["true"], warm=False))
            figures["warm"].warm_run_ms.append(await timed(drawn.choice(boxes["warm"]), PROGRAM, warm=True))
    finally:
        for made in boxes.values():
            await end(made)


async def measure(live: int, rounds: int, commands: int) -> dict[str, Any]:
    """Raises SandboxError where not even one sandbox of each kind can be made."""
    settings = SandboxSettings(backend="local", max_live=2 * live + 16)
    pool = await open_pool(settings)
    loads = [os.getloadavg()[0]]
    try:
        about = pool.probe()
        figures = {kind: KindFigures() for kind in KINDS}
        refused: list[str] = []
        number = 0
        while number < rounds:
            order = [*KINDS] if number % 2 == 0 else [*reversed(KINDS)]
            print(f"round {number + 1} of {rounds}: {live} sandboxes of each kind", file=sys.stderr)
            try:
                await measure_round(pool, order, live, commands, figures)
            except SandboxError as error:
                if live == 1:
                    raise
                refused.append(f"{live} sandboxes of each kind: {error}")
                live, number, figures = live // 2, 0, {kind: KindFigures() for kind in KINDS}
                continue
            number += 1
            loads.append(os.getloadavg()[0])
    finally:
        await pool.close()
    return {
        "machine": machine(),
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "limits": about.limits,
        "load_1m": [round(load, 1) for load in loads],
        "live_of_each_kind": live,
        "refused": refused,
        "rounds": rounds,
        "kinds": {kind: found.document() for kind, found in figures.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", type=int, default=500, help="Live sandboxes of each kind.")
    parser.add_argument("--rounds", type=int, default=4, help="Rounds; an even number gives each order equally often.")
    parser.add_argument("--commands", type=int, default=500, help="Commands of each kind in a round.")
    parser.add_argument("--json", type=Path, help="File for the result.")
    options = parser.parse_args()
    found = asyncio.run(measure(options.live, options.rounds, options.commands))
    text = json.dumps(found, indent=2) + "\n"
    print(text, end="")
    if options.json:
        options.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
