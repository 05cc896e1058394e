"""What a grading costs beyond the tests themselves, on installed projects: the same tests run plainly in a sandbox, and the whole grading.

    python benchmarks/grading_overhead.py --tasks DIR [--rounds N] [--json benchmarks/results/grading_overhead.json]

A round is one plain run of a task's test command over the reference (in a sandbox that is there already, its birth not counted) and one
grading of the reference (sandbox, files, tests, end of the sandbox), one after the other, so that foreign load falls on both; the order
changes from round to round. The result has two overheads, each the median of a task's differences. The first is wall time, which other work on
the machine stretches. The second is processor time (ours, and that of all commands in the sandboxes), which other work does not stretch.
Births and ends of sandboxes are not part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import ExecResult, SandboxSpec
from etude.tasks.graders.commands import NAME, CommandsGrader, keep_spec, machine, tests_of
from etude.tasks.graders.judged import graded_files
from etude.tasks.running.channel import fill_command
from etude.tasks.running.testrun import visible_command
from etude.tasks.solved import reference_files
from etude.tasks.store.opened import open_tasks
from etude.tasks.task import Task


@dataclass(frozen=True)
class Cost:
    """In milliseconds. `lives`: of it, births and ends of sandboxes."""

    wall: float
    cpu: float
    lives: float = 0.0


class Counting:
    """A pool that counts what commands in its sandboxes take of the processors, and how long births and ends take."""

    def __init__(self, pool: SandboxPool) -> None:
        self.pool, self.cpu_s, self.lives_s = pool, 0.0, 0.0

    async def create(self, spec: SandboxSpec) -> Sandbox:
        start = time.perf_counter()
        box = await self.pool.create(spec)
        self.lives_s += time.perf_counter() - start
        run, kill = box.run, box.kill

        async def counted(*words: Any, **options: Any) -> ExecResult:
            done = await run(*words, **options)
            self.cpu_s += done.cpu_s
            return done

        async def ended() -> None:
            start = time.perf_counter()
            await kill()
            self.lives_s += time.perf_counter() - start

        box.run, box.kill = counted, ended  # type: ignore[method-assign]
        return box

    async def close(self) -> None:
        await self.pool.close()


async def plain(task: Task, pool: SandboxPool) -> Cost:
    """The project's own test command, as a person would run it on the chosen files."""
    tests = tests_of(task)
    words = list(visible_command(tests)) if not tests.command else fill_command(tests.command, list(tests.files))
    argv = [*words, *tests.files] if not tests.command else words
    box = await machine(task, pool, keep_spec)(graded_files(task, reference_files(task)))
    try:
        done = await box.run(argv, timeout_s=120.0, max_output_bytes=1 << 22)
    finally:
        await box.kill()
    assert done.rc in (0, 1) and not done.timed_out, (
        task.id,
        done.rc,
        done.out[-500:],
    )  # some projects have tests that fail
    return Cost(1000 * done.duration_s, 1000 * done.cpu_s)


async def whole(task: Task, pool: SandboxPool) -> Cost:
    counting, own, start = Counting(pool), time.process_time(), time.perf_counter()
    verdict = await CommandsGrader().grade(task, reference_files(task), counting)
    wall, cpu = time.perf_counter() - start, time.process_time() - own + counting.cpu_s
    assert verdict.passed, (task.id, verdict.reason)
    return Cost(1000 * wall, 1000 * cpu, 1000 * counting.lives_s)


async def measured(task: Task, pool: SandboxPool, rounds: int) -> dict[str, Any]:
    found: dict[str, list[Cost]] = {"plain": [], "whole": []}
    for number in range(rounds + 1):
        for name, run in (("plain", plain), ("whole", whole))[:: 1 if number % 2 else -1]:
            cost = await run(task, pool)
            if number:  # the first warms
                found[name].append(cost)
    pairs = list(zip(found["plain"], found["whole"], strict=True))
    return {
        "task": task.id,
        "tests": len(task.hidden["pass_to_pass"]) + len(task.hidden["fail_to_pass"]),
        **{f"{name}_cpu_ms": round(median(cost.cpu for cost in costs), 1) for name, costs in found.items()},
        "overhead_cpu_ms": round(median(b.cpu - a.cpu for a, b in pairs), 1),
        "sandbox_wall_ms": round(median(cost.lives for cost in found["whole"]), 1),
        "overhead_wall_ms": round(median(b.wall - a.wall for a, b in pairs), 1),
    }


async def run(asked: argparse.Namespace) -> list[dict[str, Any]]:
    source = open_tasks(asked.tasks)
    chosen: dict[str, Task] = {}
    for row in source.rows.values():
        if row.project not in chosen and len(chosen) < asked.projects and (task := source.task(row.id)).grader == NAME:
            chosen[row.project] = task
    pool = await open_pool(SandboxSettings())
    try:
        rows = []
        for task in chosen.values():
            rows.append(await measured(task, pool, asked.rounds))
            print(json.dumps(rows[-1]), flush=True)
        return rows
    finally:
        await pool.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True, help="a folder of tasks of installed projects")
    parser.add_argument("--projects", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the result here too")
    asked = parser.parse_args()
    facts = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    facts |= {"load_1min": round(os.getloadavg()[0], 2)}
    rows = asyncio.run(run(asked))
    over = {name: median(row[name] for row in rows) for name in ("overhead_cpu_ms", "overhead_wall_ms")}
    command = f"python benchmarks/grading_overhead.py --tasks DIR --projects {asked.projects} --rounds {asked.rounds}"
    text = json.dumps({"command": command, "machine": facts, **over, "tasks": rows}, indent=1) + "\n"
    print(text, end="")
    if asked.json:
        asked.json.write_text(text)


if __name__ == "__main__":
    main()
