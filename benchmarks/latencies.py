"""How long tools take in repositories of real packages: `python benchmarks/latencies.py`. About three minutes on quiet cores.

A scripted solver works on the 30 bugs of the real suite, one after the other, through the harness and in sandboxes like any agent:
search, look, test, edit, test. The session format has the wall seconds of each call; they are written by tool, for
`rl.attempt.tool_latencies` and `benchmarks/overlap.py`. `busy_share` is the machine's busy time over this run's
own: above 1.1 something else ran, and calls took longer than their due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from etude.fleet.open import open_sandboxes
from etude.harness.settings import HarnessSettings
from etude.policy.scripted import ScriptedPolicy
from etude.recipe.read import find_recipe, read_recipe
from etude.rollout.attempt import Setup, attempt
from etude.run.machine import machine, versions
from etude.run.meter import Cost, Meter
from etude.sandbox.spec import SandboxSpec
from etude.tasks.real.catalogue import bugs
from etude.tasks.real.source import RealPackages
from etude.tasks.registry import GRADERS
from etude.tasks.running.pin import default_cache
from etude.tasks.running.pytest_tools import with_pytest
from etude.tasks.task import Task
from etude.trace.message import Message, ToolCall

OUT = Path(__file__).parent / "results" / "latencies.json"


def script(task: Task) -> list[Message]:
    """The calls of a solver who knows the answer and works as one who does not."""
    edits = bugs()[task.id].edits
    calls: list[tuple[str, dict[str, str]]] = [("todo", {"text": "add find the cause"}), ("shell", {"command": "ls"})]
    for edit in edits:
        word = max(edit.new.replace("(", " ").replace(")", " ").split() or ["def"], key=len)
        pattern = "".join(character if character.isalnum() or character == "_" else "." for character in word)
        calls += [("grep", {"pattern": pattern}), ("view", {"path": edit.file})]
    calls += [("test", {}), *(("edit", {"path": e.file, "old": e.new, "new": e.old}) for e in edits), ("test", {})]
    calls += [("todo", {"text": "done find the cause"}), ("done", {"message": "fixed"})]
    return [
        Message("assistant", calls=(ToolCall(f"c{number}", name, arguments),))
        for number, (name, arguments) in enumerate(calls)
    ]


async def record(tasks: list[Task]) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds by tool, and how many of the sessions solved their task. Calls that failed are left out: they did not do the work."""
    recipe = read_recipe([find_recipe("laptop")], [])
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    harness = HarnessSettings.full(lint_delta_s=0.0)
    seconds: dict[str, list[float]] = {}
    solved = 0

    def adapt(spec: SandboxSpec) -> SandboxSpec:
        return with_pytest(spec, default_cache())

    try:
        for task in tasks:
            setup = Setup(ScriptedPolicy(script(task)), pool, GRADERS, harness, adapt=adapt)
            found = await attempt(task, setup, name=f"latency-{task.id}")
            solved += found.verdict.passed
            for entry in found.outcome.session.of("tool_result"):
                if not entry.data["failed"]:
                    seconds.setdefault(entry.data["name"], []).append(round(entry.data["seconds"], 4))
            print(f"{task.id}: {found.verdict.score:g}", flush=True)
    finally:
        await pool.close()
    return seconds, {"sessions": len(tasks), "solved": solved}


def machine_busy_s() -> float:
    """Core-seconds that any process of the machine has used since it started (proc(5))."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(fields[i]) for i in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, help="this many of the bugs; default: all")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    source = RealPackages(default_cache())
    tasks = [source.task(name) for name in source.ids("heldout")[: options.tasks]]
    spent, before_s = Cost(), machine_busy_s()

    def note(cost: Cost) -> None:
        nonlocal spent
        spent = cost

    with Meter(note):
        seconds, counts = asyncio.run(record(tasks))
    told = {"command": "python benchmarks/latencies.py", "suite": "real", **counts}
    told |= {"busy_share": round((machine_busy_s() - before_s) / spent.core_seconds, 2)}
    told |= {"machine": machine(), "versions": versions()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"source": told, "seconds": {k: sorted(v) for k, v in seconds.items()}}) + "\n")
    for name, values in sorted(seconds.items()):
        ordered = sorted(values)
        print(f"{name}: {len(ordered)} calls, median {ordered[len(ordered) // 2]:.3f} s, longest {ordered[-1]:.2f} s")


if __name__ == "__main__":
    main()
