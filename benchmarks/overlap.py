"""How much wall time asynchronous RL saves over taking turns, at equal cores: `python benchmarks/overlap.py`. About five minutes.

The same steps, tasks, seed and sizes as the laptop recipe's RL, from the committed SFT checkpoint. `async`: engine and trainer
work at the same time, a thread each. `sync`: generate a batch, then train on it, both cores for whoever is at it; once with
a thread each and once with two, and the faster one counts, for models this small gain little from two. The baseline has its
whole batch in flight and no pauses between thin engine steps, which help only who has other work for the core.

Twice: with tools as they are (bar: async <= 0.95 of sync), and with a second of latency before each, replayed as sleeps (bar:
<= 0.6). The time of the steps counts, from the first rollout to the last weights, so that async pays for filling its pipeline
and for draining it; starting the processes does not. Writes `benchmarks/results/overlap.json` beside this file, where
`busy_share` is the machine's busy time over the runs' own: above 1.1, something else ran and disturbed the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.events.log import EventLog
from etude.factory.exercises.source import ExerciseSource
from etude.recipe.read import find_recipe, read_recipe
from etude.recipe.recipe import Recipe
from etude.rl.run import run_rl
from etude.run.machine import machine, versions
from etude.run.meter import Cost, Meter

CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "sft-nano"
BARS = {"exercises": 0.95, "slow_tools": 0.6}
# A test run or a search of a real repository takes about a second; the exercises' own take milliseconds.
LATENCY_S = {"exercises": 0.0, "slow_tools": 1.0}
# A rollout of slow tools lasts several steps' time; async may have several batches in flight, as far as staleness allows.
SLOW_BATCHES = 3
BASELINES = ("sync", 1), ("sync", 2)
ASYNC = ("async", 1)


@dataclass(frozen=True)
class Case:
    """One run."""

    recipe: Recipe
    checkpoint: Path
    mode: str
    threads: int
    latency_s: float

    def settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What differs from the recipe: keys of its rl and of its engine section."""
        rl = self.recipe.rl
        batch = rl.groups_per_step * rl.group_size
        slots = batch if self.mode == "sync" else SLOW_BATCHES * batch if self.latency_s else rl.slots
        attempt = rl.attempt.model_copy(update={"tool_latency_s": self.latency_s})
        changes = {"mode": self.mode, "threads": self.threads, "slots": slots, "attempt": attempt, "keep_sessions": 0}
        pauses = {"company": 0, "tick_s": 0.0} if self.mode == "sync" else {}
        return changes, {"max_batch": max(batch, self.recipe.engine.max_batch), **pauses}


def measure(case: Case) -> dict[str, Any]:
    """Seconds of the steps, and what the processes did meanwhile."""
    changes, engine_changes = case.settings()
    folder = Path(tempfile.mkdtemp(prefix="overlap-"))
    spent = Cost()

    def note(cost: Cost) -> None:
        nonlocal spent
        spent = cost

    busy_s = _machine_busy_s()
    try:
        with Meter(note):
            summary = run_rl(
                case.recipe.rl.model_copy(update=changes),
                checkpoint=case.checkpoint,
                folder=folder,
                source=ExerciseSource(case.recipe.exercises),
                harness=case.recipe.harness,
                engine=case.recipe.engine.model_copy(update=engine_changes),
                sandbox=case.recipe.sandbox,
                log=EventLog.null(),
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    counts, times = summary["counts"], summary["times"]
    return {
        "threads": case.threads,
        "seconds": round(times["train_s"], 2),
        "core_seconds": round(spent.core_seconds, 1),
        "busy_share": round((_machine_busy_s() - busy_s) / spent.core_seconds, 2),
        "sampled_tokens": counts["sampled_tokens"],
        "swapped_in_flight_share": round(counts["swapped_in_flight"] / counts["rollouts"], 3),
        "staleness": summary["staleness"],
        "times": {name: round(value, 3) for name, value in times.items()},
    }


def _machine_busy_s() -> float:
    """Core-seconds that any process of the machine has used since it started: user, nice, system, interrupts (proc(5))."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(fields[i]) for i in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def compare(name: str, recipe: Recipe, checkpoint: Path) -> dict[str, Any]:
    """All modes under one latency; the faster baseline counts."""
    runs = {case: measure(Case(recipe, checkpoint, *case, latency_s=LATENCY_S[name])) for case in (*BASELINES, ASYNC)}
    sync = min((runs[case] for case in BASELINES), key=lambda run: run["seconds"])
    ratio = runs[ASYNC]["seconds"] / sync["seconds"]
    print(f"{name}: async {runs[ASYNC]['seconds']:.1f} s / sync {sync['seconds']:.1f} s = {ratio:.2f}", flush=True)
    found = {"ratio": round(ratio, 3), "bar": BARS[name], "within": ratio <= BARS[name]}
    return found | {f"{mode}_{threads}_threads": run for (mode, threads), run in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=CHECKPOINT)
    parser.add_argument("--recipe", default="laptop")
    parser.add_argument("--steps", type=int, default=8, help="training steps of each run")
    parser.add_argument("--only", choices=tuple(BARS), help="one of the two")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "overlap.json")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")  # the most any process may use; each run says how many it takes
    recipe = read_recipe([find_recipe(options.recipe)], [f"rl.steps={options.steps}", "rl.eval_every=0"])
    result: dict[str, Any] = {"machine": machine(), "versions": versions()}
    result["options"] = {"recipe": options.recipe, "steps": options.steps, "checkpoint": options.checkpoint.name}
    for name in [options.only] if options.only else list(BARS):
        result[name] = compare(name, recipe, options.checkpoint)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
