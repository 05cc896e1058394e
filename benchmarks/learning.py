"""What the parts of RL are worth, arm against arm on the same tasks: `python benchmarks/learning.py --seeds 0 1 2`.

Every arm is the ci recipe's RL from the committed SFT checkpoint with one key changed; all arms of a seed get the same tasks in the same
order, and as many rollouts. Every training task is seen once, so what counts is the last third of them, as new tasks: attempts solved,
tokens sampled a rollout, p99 of |dlogp| between sampler and trainer (median over steps); differences to `base` are paired by
task, with 95% intervals that resample tasks. `--control` trains rejection-sampled SFT too, from `--share` times as many attempts as RL made
and for as much more CPU time than its trainer took, and asks held-out tasks of SFT, control and RL, 16 times each. At a share of 1.3
sampling and training take as many core-seconds in all as RL's: sampling is cheaper when no trainer runs at the same time.

An arm of 20 steps takes about three minutes of two quiet cores (five to eight on busy ones), the control six. The result has the
core-seconds of every arm next to its figures: the machine may be busy. Each arm and seed has a folder; one that is finished is not run again,
and one that was killed goes on. `--only` runs some arms; the figures are of all that is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from etude.core.statistics.bounded import difference
from etude.core.statistics.interval import stratified_mean
from etude.core.trace.gap_file import read_gaps
from etude.evaluate.bench.claims import discovery, lift
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.settings import BenchSettings
from etude.pipeline.run.machine import machine, versions
from etude.rl.steps import read
from etude.rl.store import GroupStore

ARMS: dict[str, list[str]] = {
    "base": [],  # trust tis, replay on, length penalty 0.01
    "none": ["rl.update.trust.kind=none"],
    "no_penalty": ["rl.length.scale=0"],
    "penalty_0.05": ["rl.length.scale=0.05"],
    "no_replay": ["rl.update.router_replay=false"],
    "bf16": ["engine.weights=bfloat16"],  # the engine's, as where it serves in a lower precision than is trained in
    "bf16_no_replay": ["engine.weights=bfloat16", "rl.update.router_replay=false"],
    "mxfp8": ["engine.weights=mxfp8"],
    "mxfp8_no_replay": ["engine.weights=mxfp8", "rl.update.router_replay=false"],
    "ppo_clip": ["rl.update.trust.kind=ppo_clip"],
    "icepop": ["rl.update.trust.kind=icepop"],
    "dppo_mask": ["rl.update.trust.kind=dppo_mask"],
}
CONTROL = "rewarded_sft"
OTHER_STAGES = "corpus base short mtp long sessions sft competent_sft trials probes bench report".split()
CONTROL_STAGES = ["attempts", CONTROL]
EASY = ("one-bug", "from-tests", "docstring")  # levels of a single edit
REPLAYS = [("base", "no_replay"), ("bf16", "bf16_no_replay"), ("mxfp8", "mxfp8_no_replay")]
AGES = (1, 2)  # versions between sampling and training
RESAMPLES, REDRAWS = 2000, 300
ETUDE = [sys.executable, "-c", "import sys; from etude.cli.main import main; sys.argv[0] = 'etude'; main()"]


@dataclass(frozen=True)
class Seen:
    """One task of the last third: means over its group."""

    level: str
    solved: float
    tokens: float


def run(arm: str, seed: int, steps: int, folder: Path, share: float = 1.0) -> None:
    """The arm's RL to its end; `CONTROL` is the base arm's run, gone on with its control, of that share of RL's attempts and training."""
    without = OTHER_STAGES if arm == CONTROL else [*OTHER_STAGES, *CONTROL_STAGES]
    settings = [f"rl.steps={steps}", f"rl.seed={seed}", "rl.solvable_tasks=0", "rl.keep_sessions=0"]
    settings += [f"run.without={json.dumps(without)}", f"run.control_share={share}", *ARMS.get(arm, [])]
    words = [word for setting in settings for word in ("--set", setting)]
    subprocess.run([*ETUDE, "run", "recipes/ci.toml", "--out", str(folder), *words], check=True)


def seen(folder: Path) -> dict[str, Seen]:
    """The tasks of the last third of the schedule, by id."""
    store = GroupStore(folder / "rl" / "groups")
    groups = store.groups()
    found = {}
    for group in groups[len(groups) * 2 // 3 :]:
        rollouts = store.load(group)
        tokens = mean(float(sum(s.sampled.sum() for s in r.segments)) for r in rollouts)
        name = rollouts[0].task_id
        found[name] = Seen(name.split("/")[0], mean(float(r.rewards["outcome"] >= 1) for r in rollouts), tokens)
    return found


def row(seed: int, folder: Path, tasks: dict[str, Seen]) -> dict[str, Any]:
    """One arm under one seed."""
    curve = json.loads((folder / "rl" / "summary.json").read_text())["curve"]
    easy = [task for task in tasks.values() if task.level in EASY]
    late = curve[len(curve) * 2 // 3 :]
    return {
        "seed": seed,
        "tasks": len(tasks),
        "solved_percent": round(100 * mean(task.solved for task in tasks.values()), 2),
        "tokens": round(mean(task.tokens for task in tasks.values()), 2),
        "easy_solved_percent": round(100 * mean(task.solved for task in easy), 2),
        "easy_tokens": round(mean(task.tokens for task in easy), 2),
        "dlogp_p99": round(float(np.median([point["drift_p99"] for point in late])), 4),
        "k3": round(mean(point["drift_k3"] for point in late), 6),
        "core_seconds": round(json.loads((folder / "stages.json").read_text())["rl"]["core_seconds"]),
        "curve_percent": [round(100 * point["pass_rate"], 1) for point in curve],
    }


def against(base: Iterable[dict[str, Seen]], arm: Iterable[dict[str, Seen]]) -> dict[str, Any]:
    """Differences to the base arm, paired by seed and task."""
    pairs = [(one[name], other[name]) for one, other in zip(base, arm, strict=True) for name in one if name in other]
    easy = [pair for pair in pairs if pair[0].level in EASY]
    found: dict[str, Any] = {"tasks": len(pairs)}
    for name, chosen in (("", pairs), ("easy_", easy)):
        solved = {"": np.array([after.solved - before.solved for before, after in chosen])}
        points, ci95 = difference(solved, {"": 1.0}, resamples=RESAMPLES, seed=0).percent()
        tokens = {"": np.array([after.tokens - before.tokens for before, after in chosen])}
        change = stratified_mean(tokens, {"": 1.0}, resamples=RESAMPLES, seed=0)
        found |= {f"{name}solved_points": points, f"{name}solved_ci95": ci95}
        found |= {f"{name}tokens": round(change.value, 2)}
        found |= {f"{name}tokens_ci95": [round(change.low, 2), round(change.high, 2)]}
    return found


def replay(runs: Path, seeds: list[int], on: str, off: str) -> list[dict[str, Any]]:
    """By how much p99 |dlogp| of sampled tokens is larger without replay, apart for each age, for the arms' tokens differ in age too.

    The ratio's interval resamples groups.
    """
    found = []
    for age in AGES:
        arms = [[gap for s in seeds for gap in gaps(runs / arm / f"seed-{s}", age)] for arm in (off, on)]
        rng = np.random.default_rng(age)
        draws = [[_p99(rng.choice(len(arm), len(arm)), arm) for _ in range(REDRAWS)] for arm in arms]
        without, with_replay = (_p99(np.arange(len(arm)), arm) for arm in arms)
        low, high = np.quantile(np.divide(*draws), [0.025, 0.975])
        found.append(
            {"on": on, "off": off, "age": age, "tokens": sum(map(len, arms[1])), "p99_on": round(with_replay, 4)}
            | {"p99_off": round(without, 4), "off_over_on": round(without / with_replay, 3)}
            | {"ci95": [round(float(low), 3), round(float(high), 3)]}
        )
    return found


def gaps(folder: Path, age: int) -> list[np.ndarray]:
    """|dlogp| of every group's sampled tokens that were `age` versions old when they were trained on; groups without any left out."""
    store, found = GroupStore(folder / "rl" / "groups"), []
    for record in read(folder / "rl" / "steps.jsonl"):
        for group in record.groups:
            path, rollouts = folder / "rl" / "gaps" / f"{group:06d}.npy", store.load(group)
            gap = np.concatenate([read_gaps(path, place) for place in range(len(rollouts))])
            versions = np.concatenate([s.versions[s.sampled] for r in rollouts for s in r.segments])
            found.append(np.abs(gap[record.step - versions == age]))
    return [gap for gap in found if len(gap)]


def _p99(chosen: np.ndarray, groups: list[np.ndarray]) -> float:
    return float(np.quantile(np.concatenate([groups[n] for n in chosen]), 0.99))


def checkpoints(folder: Path) -> dict[str, Path]:
    """Who is asked the held-out tasks."""
    own = {CONTROL: folder / CONTROL / "checkpoint", "rl": folder / "rl" / "checkpoint"}
    return {"sft": Path("checkpoints/sft-nano"), **own}


def ask(folder: Path, tasks: int) -> None:
    """Held-out tasks asked of the start, the control and RL; goes on where it was killed."""
    policies = [
        word for name, path in checkpoints(folder).items() for word in ("--policy", f"{name}=checkpoint:{path}")
    ]
    words = ["bench", "run", "exercises", "--only", *policies, "--passes", "16", "--tasks", str(tasks)]
    subprocess.run([*ETUDE, *words, "--concurrency", "64", "--out", str(folder / "heldout")], check=True)


def answers(folder: Path) -> dict[str, list[Outcome]]:
    """What came of it, by policy."""
    report = json.loads((folder / "heldout" / "report.json").read_text())
    keys = {entry["name"]: entry["key"] for entry in report["policies"]}
    files = {name: folder / "heldout" / "policies" / f"{key}.jsonl" for name, key in keys.items()}
    return {name: list(OutcomeFile(path).outcomes.values()) for name, path in files.items()}


def margins(found: dict[str, list[Outcome]]) -> dict[str, Any]:
    """RL over its start and over its control; intervals resample tasks."""
    settings, sft, rl = BenchSettings(), found["sft"], found["rl"]
    averages = {name: round(100 * mean(o.score for o in outcomes), 2) for name, outcomes in found.items()}
    over = {name: lift(found[name], rl, settings) for name in ("sft", CONTROL)}
    return {"avg_percent": averages, "rl_over": over, "discovery": discovery(sft, rl, "relapse", settings)}


def control(runs: Path, seeds: list[int]) -> dict[str, Any]:
    """By seed, and with the attempts of all seeds at a task counted together."""
    by_seed = {seed: runs / "base" / f"seed-{seed}" for seed in seeds}
    found = {
        seed: answers(folder) for seed, folder in by_seed.items() if (folder / "heldout" / "report.json").is_file()
    }
    if not found:
        return {}
    together = {
        name: [replace(o, attempt=o.attempt + 1000 * seed) for seed, answer in found.items() for o in answer[name]]
        for name in next(iter(found.values()))
    }
    paid = {str(seed): _paid(by_seed[seed]) for seed in found}
    return {"seeds": {str(s): margins(a) for s, a in found.items()}, "pooled": margins(together), "core_seconds": paid}


def _paid(folder: Path) -> dict[str, int]:
    """Core-seconds of RL and of the control, sampling and training together."""
    stages = json.loads((folder / "stages.json").read_text())
    seconds = {name: stages[name]["core_seconds"] for name in ("rl", *CONTROL_STAGES)}
    return {"rl": round(seconds.pop("rl")), CONTROL: round(sum(seconds.values()))}


def figures(runs: Path, seeds: list[int]) -> dict[str, Any]:
    """Of every arm that has finished under a seed; differences over the seeds that both arms have."""
    done = {arm: [s for s in seeds if (runs / arm / f"seed-{s}" / "rl" / "summary.json").is_file()] for arm in ARMS}
    tasks = {(a, s): seen(runs / a / f"seed-{s}") for a, found in done.items() for s in found}
    result: dict[str, Any] = {"arms": {}, "against_base": {}, "replay": []}
    for arm, found in done.items():
        if not found:
            continue
        result["arms"][arm] = {
            "changes": ARMS[arm],
            "seeds": [row(s, runs / arm / f"seed-{s}", tasks[arm, s]) for s in found],
        }
        both = [s for s in found if s in done["base"]]
        if arm != "base" and both:
            result["against_base"][arm] = against([tasks["base", s] for s in both], [tasks[arm, s] for s in both])
    if both := [s for s in done["no_penalty"] if s in done["penalty_0.05"]]:
        without, with_penalty = ([tasks[arm, s] for s in both] for arm in ("no_penalty", "penalty_0.05"))
        result["penalty_against_none"] = against(without, with_penalty)
    for on, off in REPLAYS:
        if both := [s for s in done[on] if s in done[off]]:
            result["replay"] += replay(runs, both, on, off)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=tuple(ARMS), default=list(ARMS))
    parser.add_argument(
        "--control", action="store_true", help="rejection-sampled SFT from as many attempts, and a bench"
    )
    parser.add_argument("--share", type=float, default=1.3, help="the control's attempts and training time, of RL's")
    parser.add_argument("--tasks", type=int, default=112, help="held-out tasks of that bench")
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"), help="where the run directories go")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "learning.json")
    options = parser.parse_args()
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.out.is_file() else {}
    for seed in options.seeds:
        for arm in options.only:
            folder = options.runs / arm / f"seed-{seed}"
            if not (folder / "rl" / "summary.json").is_file():
                run(arm, seed, options.steps, folder)
            result |= {"machine": machine(), "versions": versions(), "steps": options.steps}
            result |= figures(options.runs, options.seeds)
            options.out.write_text(json.dumps(result, indent=1) + "\n")
        if options.control:
            folder = options.runs / "base" / f"seed-{seed}"
            run(CONTROL, seed, options.steps, folder, options.share)
            ask(folder, options.tasks)
            result["control"] = {"share": options.share, **control(options.runs, options.seeds)}
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
