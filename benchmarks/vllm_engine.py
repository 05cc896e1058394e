"""vLLM against our own engine: `python benchmarks/vllm_engine.py --vllm-python PYTHON --folder DIR [--steps 6] [--rounds 2] [--write]`.

The same RL run from the committed SFT checkpoint (exercises, sandboxes, Ray on this machine) with either engine, in turns: rollouts a second
over the steps, core-seconds of the processes that sample, how far sampler and trainer are apart. Both get the same tasks, one thread
and the same steps. What is measured on cores that others use tells an order of magnitude. Writes `benchmarks/results/vllm_engine.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from killing.victims import below, read_processes, victims

from etude.pipeline.run.machine import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "vllm_engine.json"
CHECKPOINT = HERE.parent / "checkpoints" / "sft-nano"
SETTINGS = {"groups_per_step": 16, "group_size": 8, "slots": 64, "solvable_tasks": 0, "keep_sessions": 0}
SAMPLERS = ("engine", "vllm")
LOOK_S = 1.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def run(folder: Path, steps: int, engine: dict[str, Any], seed: int) -> dict[str, float]:
    """One run; its figures."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = json.dumps(SETTINGS | {"steps": steps, "seed": seed})
    words = [
        sys.executable,
        str(HERE / "killing" / "driver.py"),
        str(CHECKPOINT),
        str(folder),
        settings,
        "{}",
        json.dumps(engine),
    ]
    environment = os.environ | {"PYTHONPATH": f"{HERE.parent / 'src'}:{HERE}", "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment)
        used: dict[int, float] = {}
        while process.poll() is None:
            used |= cpu_of_samplers(process.pid)
            time.sleep(LOOK_S)
    if process.returncode:
        raise SystemExit(f"the run in {folder} ended with {process.returncode}; see its log")
    summary = json.loads((folder / "summary.json").read_text())
    rollouts, train_s = steps * 128, summary["times"]["train_s"]
    return {
        "rollouts_per_s": rollouts / train_s,
        "train_s": train_s,
        "start_s": summary["times"]["start_s"],
        "wall_s": time.monotonic() - began,
        "sampler_cpu_s": sum(used.values()),
        "sampled_tokens": float(summary["counts"]["sampled_tokens"]),
        "k3": summary["mismatch"]["k3"],
        "p99": summary["mismatch"]["p99"],
        "load_1min": os.getloadavg()[0],
    }


def cpu_of_samplers(root: int) -> dict[int, float]:
    """Core-seconds so far by process, of those that sample."""
    processes = read_processes()
    found = victims(processes, root)
    pids = {one.pid for kind in SAMPLERS for one in found.get(kind, ())}
    pids |= {one.pid for pid in list(pids) for one in below(processes, pid)}
    used = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        used[pid] = (int(fields[11]) + int(fields[12])) * TICK_S
    return used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm-python", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    engines = {"etude": {}, "vllm": {"kind": "vllm", "vllm": {"python": options.vllm_python}}}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
    for number in range(options.rounds):
        for name, engine in engines.items():
            rounds[name].append(run(options.folder / f"{name}-{number}", options.steps, engine, number))
            print(name, {key: round(value, 9) for key, value in rounds[name][-1].items()}, flush=True)
    medians = {
        name: {key: statistics.median(one[key] for one in found) for key in found[0]} for name, found in rounds.items()
    }
    document = {
        "command": f"python benchmarks/vllm_engine.py --vllm-python PYTHON --folder DIR --steps {options.steps} --rounds {options.rounds}",
        "machine": machine(),
        "vllm": version_in(options.vllm_python),
        "steps": options.steps,
        "rounds": rounds,
        "medians": medians,
        "rollouts_per_s_of_vllm_to_ours": [
            theirs["rollouts_per_s"] / ours["rollouts_per_s"]
            for theirs, ours in zip(rounds["vllm"], rounds["etude"], strict=True)
        ],
    }
    text = json.dumps(document, indent=1) + "\n"
    if options.write:
        RESULTS.write_text(text)
    print(text)


def version_in(python: str) -> str:
    from etude.learn.engine.vllm.found import vllm_version

    return vllm_version(python)


if __name__ == "__main__":
    main()
