"""How much wall time asynchronous RL saves over taking turns, at equal cores: `python benchmarks/overlap.py CHECKPOINT`.

The same steps, tasks and seed: `async` (engine and trainer one thread each, at the same time) against `sync` (generate the batch,
then train on it, both cores for whoever is at it; with one thread and with two, the faster counts, for small models gain
nothing from two). Once with tools as they are (bar: async <= 0.95 of sync) and once
with a tool latency replayed as sleeps (bar: <= 0.6). Only the time of the steps counts, not the start of the processes.
Writes `benchmarks/results/overlap.json` beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from etude.engine.settings import EngineSettings
from etude.events.log import EventLog
from etude.factory.exercises.source import ExerciseSource
from etude.factory.settings import ExerciseSettings
from etude.harness.settings import HarnessSettings
from etude.rl.run import run_rl
from etude.rl.settings import RlSettings
from etude.run.machine import machine, versions
from etude.sandbox.settings import SandboxSettings

BARS = {"exercises": 0.95, "slow_tools": 0.6}
# A test run or a search of a real repository takes about a second; the exercises' own take milliseconds.
SLOW_TOOL_S = 1.0


def measure(
    checkpoint: Path, mode: str, threads: int, latency_s: float, options: argparse.Namespace
) -> dict[str, float]:
    """Seconds of the steps, and what the processes did meanwhile."""
    batch = options.groups * options.size
    settings = RlSettings.model_validate(
        {
            "mode": mode,
            "threads": threads,
            "steps": options.steps,
            "groups_per_step": options.groups,
            "group_size": options.size,
            "slots": batch,  # the baseline too has the whole batch in flight
            "save_every": options.steps,
            "attempt": {"tool_latency_s": latency_s},
        }
    )
    folder = Path(tempfile.mkdtemp(prefix="overlap-"))
    try:
        summary = run_rl(
            settings,
            checkpoint=checkpoint,
            folder=folder,
            source=ExerciseSource(ExerciseSettings()),
            harness=HarnessSettings(),
            engine=EngineSettings(max_batch=batch),
            sandbox=SandboxSettings(),
            log=EventLog.null(),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    tokens = float(summary["counts"]["sampled_tokens"])
    return {"threads": threads, "seconds": summary["times"]["train_s"], "sampled_tokens": tokens, **summary["times"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument(
        "--repeats", type=int, default=1, help="runs of each; the fastest counts, others were disturbed"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "overlap.json")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    result: dict[str, Any] = {"machine": machine(), "versions": versions(), "options": vars(options) | {}}
    for name, latency_s in (("exercises", 0.0), ("slow_tools", SLOW_TOOL_S)):
        best: dict[str, dict[str, float]] = {}
        for mode, threads in (("sync", 1), ("sync", 2), ("async", 1)):
            runs = [measure(options.checkpoint, mode, threads, latency_s, options) for _ in range(options.repeats)]
            runs += [best[mode]] if mode in best else []
            best[mode] = min(runs, key=lambda run: run["seconds"])
        ratio = best["async"]["seconds"] / best["sync"]["seconds"]
        result[name] = {"ratio": round(ratio, 3), "bar": BARS[name], "within": ratio <= BARS[name], **best}
        print(f"{name}: async {best['async']['seconds']:.1f} s / sync {best['sync']['seconds']:.1f} s = {ratio:.2f}")
    result["options"] = {key: str(value) for key, value in vars(options).items() if key != "out"}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
