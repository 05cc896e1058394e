"""What the bench itself costs: 1,000 passes by a scripted agent, against the very same attempts made without it.

    python benchmarks/bench_overhead.py --out benchmarks/results/bench_overhead.json

Both sides make the same attempts (a sandbox, the harness, three turns with an edit and a test run, a second sandbox that grades) with
the same concurrency, in turns of 100, so that a machine's other load falls on both. The bench adds seeds, tallies, a session, a patch and
an outcome on disk for each, and the live events. The result gives the overhead in core-seconds of the whole process tree
and in wall seconds. Other load moves core-seconds less than wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from etude.core.events.log import EventLog
from etude.evaluate.bench.runs.budget import RunBudget
from etude.evaluate.bench.runs.checking import checked_tasks
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.runs.participant_run import Bench, ParticipantRun
from etude.evaluate.bench.runs.scripted import expert
from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.pipeline.run.machine import machine, versions
from etude.pipeline.run.meter import Meter, StageCost
from etude.pipeline.run.participants import resolve_participants
from etude.pipeline.run.policy_options import PolicyOptions
from etude.pipeline.run.suite_bench import BenchmarkOrder
from etude.pipeline.run.suites import open_suite
from etude.rollout.attempt import AttemptSetup
from etude.rollout.batch import AttemptJob, run_batch
from etude.sandbox.fleet.open import open_sandboxes

TASKS = 20
TURNS = 10  # of 100 attempts each, on either side
PASSES = 5  # a turn: 20 tasks x 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--concurrency", type=int, default=os.cpu_count() or 2)
    args = parser.parse_args()
    found = asyncio.run(measure(args.turns, args.concurrency))
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["overhead"], indent=1))


async def measure(turns: int, concurrency: int) -> dict[str, Any]:
    recipe = read_recipe([find_recipe("laptop")])
    suite = open_suite("exercises", recipe, tasks=TASKS)
    (participant,) = resolve_participants(["expert"], suite, recipe, PolicyOptions(), EventLog.null(), only=True)
    spent = {"bare": StageCost(), "bench": StageCost()}
    loads, scores = [], []
    with tempfile.TemporaryDirectory() as scratch:
        order = BenchmarkOrder(suite, suite.ids, [participant], Path(scratch), EventLog.null(), concurrency=concurrency)
        pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
        try:
            tasks = checked_tasks(suite, suite.ids)
            setup = AttemptSetup(
                expert, pool, suite.graders, participant.harness, settings=order.limits, adapt=suite.adapt
            )
            jobs = [AttemptJob(task, f"{task.id}#{n}", seed=n) for n in range(PASSES) for task in tasks]
            for turn in range(turns):
                loads.append(os.getloadavg()[0])
                folder = RunFolder(Path(scratch) / str(turn))
                bench = Bench(
                    suite, tasks, folder, pool, EventLog(folder.events), RunBudget(None), PASSES, concurrency, seed=turn
                )
                asking = ParticipantRun(bench, replace(participant), order.limits)
                sides = [("bare", run_batch(jobs, setup, concurrency=concurrency)), ("bench", asking.run())]
                for name, work in sides if turn % 2 else sides[::-1]:
                    meter = Meter(lambda cost: None)
                    with meter:
                        await work
                    spent[name] += meter.cost
                scores += [o.score for o in asking.kept]
        finally:
            await pool.close()
    attempts = turns * len(jobs)
    costs = {
        name: {**asdict(cost), "attempts_per_s": round(attempts / cost.seconds, 2)} for name, cost in spent.items()
    }
    return {
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": versions(),
        "load_before_each_turn": [round(load, 1) for load in loads],
        "attempts_each_side": attempts,
        "concurrency": concurrency,
        "average_score": sum(scores) / len(scores),
        "sides": costs,
        "overhead": {
            "core_seconds": round(spent["bench"].core_seconds / spent["bare"].core_seconds - 1, 4),
            "wall_seconds": round(spent["bench"].seconds / spent["bare"].seconds - 1, 4),
            "seconds_for_1000_passes": round(1000 * spent["bench"].seconds / attempts, 1),
            "core_seconds_for_1000_passes": round(1000 * spent["bench"].core_seconds / attempts, 1),
        },
    }


if __name__ == "__main__":
    main()
