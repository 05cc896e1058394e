"""How long tools take in repositories of real packages: `python benchmarks/latencies.py [--folder TASKS]`. Minutes on quiet cores.

A scripted solver works on the 30 bugs of the real suite, or on the tasks of a folder (`etude tasks make`), one after the other, through
the harness and in sandboxes like any agent: search, look, test, edit, test. In the real suite tests are those of the files concerned, in a
folder whole projects'. The session format has the wall seconds of each call; they are written by tool, for
`rl.attempt.tool_latencies` and `benchmarks/overlap.py`. `busy_share` is the machine's busy time over this run's
own: above 1.1 something else ran, and calls took longer than their due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from typing import Any

from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message, ToolCall
from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.pipeline.run.machine import machine, versions
from etude.pipeline.run.meter import Meter, StageCost
from etude.rollout.attempt import AttemptSetup, attempt
from etude.sandbox.fleet.open import open_sandboxes
from etude.sandbox.spec import SandboxSpec
from etude.tasks.real.catalogue import bugs
from etude.tasks.real.source import RealPackages
from etude.tasks.registry import GRADERS
from etude.tasks.running.pin import default_cache
from etude.tasks.running.pytest_tools import with_pytest
from etude.tasks.store.opened import open_tasks
from etude.tasks.store.source import FolderTaskSource
from etude.tasks.task import SPLITS, Task

OUT = Path(__file__).parent / "results" / "latencies.json"


@dataclass(frozen=True)
class Change:
    """What a solver does to one file."""

    path: str
    old: str
    new: str


def changes(task: Task) -> list[Change]:
    """That the solution makes. Files that it makes or takes away are left alone: there is a tool for edits."""
    if task.id in bugs():
        return [Change(edit.file, edit.new, edit.old) for edit in bugs()[task.id].edits]
    pairs = ((path, task.files.get(path, ""), new) for path, new in task.solution.items())
    return [Change(path, old, new) for path, old, new in pairs if old and new and old != new]


def word_of(change: Change) -> str:
    """The longest word of what changes first."""
    lines = ndiff(change.old.splitlines(), change.new.splitlines()) if "\n" in change.old else ["- " + change.old]
    first = next((line[2:] for line in lines if line[:2] in ("- ", "+ ") and line[2:].strip()), "def")
    return max(re.findall(r"\w+", first) or ["def"], key=len)


def script(task: Task) -> list[Message]:
    """The calls of a solver who knows the answer and works as one who does not."""
    made = changes(task)
    calls: list[tuple[str, dict[str, str]]] = [("todo", {"text": "add find the cause"}), ("shell", {"command": "ls"})]
    for change in made:
        calls += [("grep", {"pattern": word_of(change)}), ("view", {"path": change.path})]
    calls += [("test", {}), *(("edit", {"path": c.path, "old": c.old, "new": c.new}) for c in made), ("test", {})]
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
        return spec if spec.snapshot else with_pytest(spec, default_cache())

    try:
        for task in tasks:
            setup = AttemptSetup(ScriptedPolicy(script(task)), pool, GRADERS, harness, adapt=adapt)
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
    parser.add_argument("--tasks", type=int, help="this many; default: all")
    parser.add_argument("--folder", type=Path, help="of tasks, instead of the real suite")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    source = FolderTaskSource(open_tasks(options.folder)) if options.folder else RealPackages(default_cache())
    names = [name for split in SPLITS for name in source.ids(split)]
    tasks = [source.task(name) for name in names[: options.tasks]]
    spent, before_s = StageCost(), machine_busy_s()

    def note(cost: StageCost) -> None:
        nonlocal spent
        spent = cost

    with Meter(note):
        seconds, counts = asyncio.run(record(tasks))
    facts = {"command": f"python benchmarks/latencies.py{' --folder TASKS' if options.folder else ''}", **counts}
    facts |= {"suite": "a folder of tasks" if options.folder else "real"}
    facts |= {"projects": sorted({str(task.metadata.get("project") or task.metadata.get("package")) for task in tasks})}
    facts |= {"busy_share": round((machine_busy_s() - before_s) / spent.core_seconds, 2)}
    facts |= {"machine": machine(), "versions": versions()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"source": facts, "seconds": {k: sorted(v) for k, v in seconds.items()}}) + "\n")
    for name, values in sorted(seconds.items()):
        ordered = sorted(values)
        print(f"{name}: {len(ordered)} calls, median {ordered[len(ordered) // 2]:.3f} s, longest {ordered[-1]:.2f} s")


if __name__ == "__main__":
    main()
