"""How much wall time asynchronous RL saves over taking turns, at equal cores: `python benchmarks/overlap.py`. About twelve minutes.

The same steps, tasks, seed and sizes as the laptop recipe's RL, from the committed SFT checkpoint. `async`: engine and trainer
work at the same time, a thread each. `sync`: generate a batch, then train on it; engine and trainer in turn have both cores.
It runs once with a thread each and once with two. The faster run counts, for models this small gain little from two. The baseline has its
whole batch in flight and no pauses between thin engine steps, which help only who has other work for the core.

Three times: with tools as they are, where the cores bound both (bar: async <= 0.95 of sync); with a second of latency before each
command, replayed as sleeps (bar: <= 0.6); and with the latencies that tools had in sessions of real repositories
(`benchmarks/latencies.py`; bar: <= 0.4, that is 2.5 times the samples a second), drawn by rollout and call, so that both see the same.
Async has more rollouts in flight where tools are slow, and in the last case staleness 4: `CASES` says how many. What was earned is given
in addition: attempts solved with intervals, and async's difference on the same tasks, for samples that teach less would be no gain.

The time of the steps counts, from the first rollout to the last weights, so that async pays for filling its pipeline and for
draining it; starting the processes does not. Writes `benchmarks/results/overlap.json` next to this file, where `busy_share` is
the machine's busy time over the runs' own: above 1.1, something else ran and disturbed the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from etude.core.events.log import EventLog
from etude.core.statistics.bounded import average, difference
from etude.core.statistics.interval import Interval
from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.machine import machine, versions
from etude.pipeline.run.meter import Meter, StageCost
from etude.rl.observer import EventLogObserver
from etude.rl.run import run_rl
from etude.rl.run_context import RunContext
from etude.rl.steps import read
from etude.rl.store import GroupStore
from etude.tasks.generate.exercises.source import ExerciseSource

CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "sft-nano"
RECORDED = Path(__file__).parent / "results" / "latencies.json"
BASELINES = ("sync", 1), ("sync", 2)
ASYNC = ("async", 1)
RESAMPLES = 2000


@dataclass(frozen=True)
class Surroundings:
    """How slow tools are, and what async has against it. `bar`: async's time as a share of sync's."""

    bar: float
    attempt: dict[str, Any] = field(default_factory=dict)
    batches: int | None = None  # in flight with async, as far as staleness allows; None: the recipe's slots
    max_staleness: int | None = None  # None: the recipe's


CASES = {
    "exercises": Surroundings(0.95),
    # A test run or a search of a real repository takes about a second; the exercises' own take milliseconds.
    "slow_tools": Surroundings(0.6, {"tool_latency_s": 1.0}, batches=3),
    # A rollout that waits for tests lasts several steps' time.
    "recorded": Surroundings(0.4, {"tool_latencies": RECORDED}, batches=5, max_staleness=4),
}


@dataclass(frozen=True)
class Case:
    """One run."""

    recipe: Recipe
    checkpoint: Path
    mode: str
    threads: int
    found: Surroundings

    def settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What differs from the recipe: keys of its rl and of its engine section."""
        rl, found = self.recipe.rl, self.found
        batch = rl.groups_per_step * rl.group_size
        slots = batch if self.mode == "sync" else found.batches * batch if found.batches else rl.slots
        staleness = rl.max_staleness if found.max_staleness is None else found.max_staleness
        attempt = rl.attempt.model_copy(update=found.attempt)
        changes = {"mode": self.mode, "threads": self.threads, "slots": slots, "attempt": attempt, "keep_sessions": 0}
        pauses = {"company": 0, "tick_s": 0.0} if self.mode == "sync" else {}
        return changes | {"max_staleness": staleness}, {"max_batch": max(batch, self.recipe.engine.max_batch), **pauses}


def measure(case: Case) -> dict[str, Any]:
    """Seconds of the steps, and what the processes did meanwhile."""
    changes, engine_changes = case.settings()
    folder = Path(tempfile.mkdtemp(prefix="overlap-"))
    spent = StageCost()

    def note(cost: StageCost) -> None:
        nonlocal spent
        spent = cost

    busy_s = _machine_busy_s()
    try:
        with Meter(note):
            summary = run_rl(
                RunContext(
                    case.recipe.rl.model_copy(update=changes),
                    case.checkpoint,
                    folder,
                    ExerciseSource(case.recipe.exercises),
                    case.recipe.harness,
                    case.recipe.engine.model_copy(update=engine_changes),
                    case.recipe.sandbox,
                    EventLogObserver(EventLog.null()),
                )
            )
        solved, curve = solved_by_task(folder), curve_of(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    counts, times = summary["counts"], summary["times"]
    return {
        "threads": case.threads,
        "seconds": round(times["train_s"], 2),
        "core_seconds": round(spent.core_seconds, 1),
        "slots": changes["slots"],
        "max_staleness": changes["max_staleness"],
        "samples_per_second": round(counts["rollouts"] / times["train_s"], 2),
        "solved": percent(average({"": np.array(list(solved.values()))}, {"": 1.0}, resamples=RESAMPLES, seed=0)),
        "solved_by_task": solved,
        "curve_percent_low_high": curve,
        "busy_share": round((_machine_busy_s() - busy_s) / spent.core_seconds, 2),
        "sampled_tokens": counts["sampled_tokens"],
        "swapped_in_flight_share": round(counts["swapped_in_flight"] / counts["rollouts"], 3),
        "staleness": summary["staleness"],
        "times": {name: round(value, 3) for name, value in times.items()},
    }


def solved_by_task(folder: Path) -> dict[str, float]:
    """Of each trained task the share of its attempts that were solved."""
    store = GroupStore(folder / "groups")
    groups = [store.load(group) for group in store.groups()]
    return {group[0].task_id: mean(float(r.rewards["outcome"] >= 1) for r in group) for group in groups}


def curve_of(folder: Path) -> list[list[float]]:
    """Of each step's batch the share of its attempts that were solved, in percent, with its 95% interval by task."""
    store, found = GroupStore(folder / "groups"), []
    for record in read(folder / "steps.jsonl"):
        shares = [mean(float(r.rewards["outcome"] >= 1) for r in store.load(group)) for group in record.groups]
        value, ci95 = average({"": np.array(shares)}, {"": 1.0}, resamples=RESAMPLES, seed=0).percent()
        found.append([value, *ci95])
    return found


def percent(found: Interval) -> dict[str, Any]:
    value, ci95 = found.percent()
    return {"percent": value, "ci95": ci95}


def earned(sync: dict[str, float], asynchronous: dict[str, float]) -> dict[str, Any]:
    """Async minus sync on the tasks that both attempted, in points."""
    both = sorted(sync.keys() & asynchronous.keys())
    changes = {"": np.array([asynchronous[task] - sync[task] for task in both])}
    points, ci95 = difference(changes, {"": 1.0}, resamples=RESAMPLES, seed=0).percent()
    return {"tasks": len(both), "points": points, "ci95": ci95}


def _machine_busy_s() -> float:
    """Core-seconds that any process of the machine has used since it started: user, nice, system, interrupts (proc(5))."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(fields[i]) for i in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def compare(name: str, recipe: Recipe, checkpoint: Path) -> dict[str, Any]:
    """All modes under one latency; the faster baseline counts."""
    case = CASES[name]
    runs = {mode: measure(Case(recipe, checkpoint, *mode, found=case)) for mode in (*BASELINES, ASYNC)}
    sync = min((runs[mode] for mode in BASELINES), key=lambda run: run["seconds"])
    solved = {mode: run.pop("solved_by_task") for mode, run in runs.items()}
    ratio = runs[ASYNC]["seconds"] / sync["seconds"]
    gain = earned(next(solved[mode] for mode in BASELINES if runs[mode] is sync), solved[ASYNC])
    print(
        f"{name}: async {runs[ASYNC]['seconds']:.1f} s / sync {sync['seconds']:.1f} s = {ratio:.2f} ({1 / ratio:.2f} times the samples "
        f"a second); solved {runs[ASYNC]['solved']['percent']}% and {sync['solved']['percent']}%, difference {gain['points']} {gain['ci95']}",
        flush=True,
    )
    found = {"ratio": round(ratio, 3), "bar": case.bar, "within": ratio <= case.bar, "solved_difference": gain}
    return found | {f"{mode}_{threads}_threads": run for (mode, threads), run in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=CHECKPOINT)
    parser.add_argument("--recipe", default="laptop")
    parser.add_argument("--steps", type=int, default=8, help="training steps of each run")
    parser.add_argument("--only", choices=tuple(CASES), help="one of them; the others stay as --out has them")
    parser.add_argument(
        "--latencies",
        type=Path,
        default=RECORDED,
        help="file of the case `recorded`; the results of a file other than the default are kept in addition",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "overlap.json")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # the most any process may use; each run says how many it takes
    recipe = read_recipe([find_recipe(options.recipe)], [f"rl.steps={options.steps}", "rl.eval_every=0"])
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.only and options.out.is_file() else {}
    made_with = {"recipe": options.recipe, "steps": options.steps, "checkpoint": options.checkpoint.name}
    for name in [options.only] if options.only else list(CASES):
        setup = {
            "machine": machine(),
            "versions": versions(),
            "options": made_with,
        }  # a case may be measured alone, elsewhere
        if name == "recorded" and options.latencies != RECORDED:
            CASES[name].attempt["tool_latencies"] = options.latencies
            name = f"recorded_{options.latencies.stem}"
            CASES[name] = CASES["recorded"]
        result[name] = setup | compare(name, recipe, options.checkpoint)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
