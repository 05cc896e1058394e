"""Kill anything: `python benchmarks/chaos.py --folder DIR [--kills 216] [--steps 400] [--seed 0]`. It takes twenty minutes.

A real RL run starts from the committed SFT checkpoint (exercises, sandboxes, code search, engine, two trainer ranks, Ray). This program kills
processes of it by id with SIGKILL, as the seed selects them. It kills sandboxes, commands in them, the zygote, the code index, engines,
trainer ranks, Ray's node and its head, and the controller. Some kinds have windows in the middle of something that must be whole
(`killing/points.py`), and half of the kills of these kinds aim at a window. A run that ends is started again by the same words. A twin with the
same settings and without kills runs after it. Then the program checks their folders. Trained task ids are the schedule's and the twin's, none
twice. Weights, versions and step lines hold. Every reward is a verdict, and every verdict equals the one that the same files get without kills.
With `--write` the result goes into `benchmarks/results/chaos.json`. The program ends with 1 if a promise is broken. A second call deletes the
folder and starts from the beginning. A fast run is over before the plan is: kills come one after the other, each when what it wants to kill is
there again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from killing import verify
from killing.monkey import Monkey, Story
from killing.plan import SHARES, Kill, plan
from killing.witness import files_of, gradings

from etude.pipeline.run.machine import machine
from etude.rl.ledger import RlLedger
from etude.rl.schedule import task_list
from etude.rl.settings import RlSettings
from etude.rl.steps import read
from etude.rl.store import GroupStore
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.registry import grade

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE.parent / "checkpoints" / "sft-nano"
RESULTS = HERE / "results" / "chaos.json"
# Small groups and batches: many steps, and all processes at work at once. Restarts and faults are what is wanted here.
SETTINGS: dict[str, Any] = {
    "groups_per_step": 2,
    "group_size": 3,
    "slots": 6,
    "save_every": 5,
    "solvable_tasks": 0,
    "keep_sessions": 0,
    "max_restarts": 10_000,
    "max_faults": 10_000,
    "ranks": 2,
    "rank_silence_s": 60,
}
HOSTS = 10  # the share of a fleet's hosts in the kills, where there is a fleet; each costs its rest of 30 s
VLLM = 36  # that of vLLM's own processes, where it is the engine; each costs its start, half a minute
TABLES = ("fleet", "engine")  # of the settings, in addition to those of rl
PEACE = 4  # gradings at once, afterwards
# Of the driver and of Ray's workers, which import the windows too.
ENVIRONMENT = {"PYTHONPATH": f"{HERE.parent / 'src'}:{HERE}", "OMP_NUM_THREADS": "1"}


def command(checkpoint: Path, folder: Path, settings: dict[str, Any]) -> list[str]:
    """What starts the run, and starts it again."""
    arguments = [rl_settings(settings).model_dump_json()]
    arguments += [json.dumps(settings.get(table, {})) for table in TABLES]
    return [sys.executable, str(HERE / "killing" / "driver.py"), str(checkpoint), str(folder), *arguments]


def killed_run(
    checkpoint: Path, folder: Path, settings: dict[str, Any], kills: list[Kill], limit_s: float = math.inf
) -> Story:
    """The run in `folder/rl`, with what was done to it in `folder/rl-chaos`."""
    words, say = command(checkpoint, folder / "rl", settings), lambda line: print(time.strftime("%T"), line, flush=True)
    monkey = Monkey(words, ENVIRONMENT, folder / "rl", folder / "rl-chaos", settings["seed"], say)
    return monkey.run(kills, limit_s)


def twin_run(checkpoint: Path, folder: Path, settings: dict[str, Any]) -> float:
    """The same, untouched, in `folder/twin`; its wall time, s."""
    began = time.monotonic()
    words, environment = command(checkpoint, folder / "twin", settings), os.environ | ENVIRONMENT
    with open(folder / "twin.log", "wb") as log:
        subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, check=True, env=environment)
    return time.monotonic() - began


def rl_settings(settings: dict[str, Any]) -> RlSettings:
    return RlSettings.model_validate({name: value for name, value in settings.items() if name not in TABLES})


def shares_of(settings: dict[str, Any]) -> dict[str, int]:
    """Of each kind in the kills: of those that such a run has."""
    hosts = {"host": HOSTS} if settings.get("fleet") else {}
    return SHARES | hosts | ({"vllm": VLLM} if settings.get("engine", {}).get("kind") == "vllm" else {})


def schedule_of(settings: dict[str, Any]) -> tuple[str, ...]:
    return task_list(rl_settings(settings), ExerciseSource(ExerciseSettings())).task_ids


def broken_promises(run: Path, settings: dict[str, Any]) -> dict[str, list[str]]:
    """Of what the run's folder and its witness hold."""
    rl, ledger = rl_settings(settings), RlLedger(run / "ledger.jsonl")
    ledger.close()
    entries, records = ledger.entries, read(run / "steps.jsonl")
    graded = gradings(run.parent / f"{run.name}-witness")
    store = GroupStore(run / "groups")
    groups = {index: store.load(index) for index in store.groups()}
    return {
        "trained once": verify.trained_once(entries, schedule_of(settings), rl.steps),
        "same weights": verify.same_weights(entries),
        "steps told": verify.steps_told(entries, records, rl.steps),
        "versions in order": verify.versions_in_order(entries, records, rl.max_staleness),
        "rewards explained": verify.rewards_explained(groups, graded),
        "verdicts repeated": verify.verdicts_repeated(graded, asyncio.run(in_peace(run))),
    }


async def in_peace(run: Path) -> dict[str, float]:
    """Grades every verdict's files again: score by key."""
    witness, source = run.parent / f"{run.name}-witness", ExerciseSource(ExerciseSettings())
    tasks = {grading["key"]: grading["task"] for grading in gradings(witness) if "score" in grading}
    pool, room = await open_pool(SandboxSettings()), asyncio.Semaphore(PEACE)

    async def one(key: str, task: str) -> tuple[str, float]:
        async with room:
            return key, (await grade(source.task(task), files_of(witness, key), pool)).score

    try:
        return dict(await asyncio.gather(*(one(key, task) for key, task in tasks.items())))
    finally:
        await pool.close()


def figures(story: Story) -> dict[str, Any]:
    """What was done, and what it cost."""
    kinds = Counter(kill.kind for kill in story.kills)
    points = Counter(kill.point for kill in story.kills if kill.point)
    lost = verify.time_lost(story.trained, [(kill.unix_s, kill.kind) for kill in story.kills])
    return {
        "kills": len(story.kills),
        "by_kind": dict(sorted(kinds.items())),
        "in_windows": dict(sorted(points.items())),
        "missed": story.missed,
        "steps": len(story.trained),
        "lives": len(story.ends) + 1,
        "ends": [{name: end[name] for name in ("by", "rc", "caused", "after_s", "said")} for end in story.ends],
        "hangs": story.hangs,
        "whole": story.whole,
        "wall_s": round(story.ended_unix_s - story.began_unix_s, 1),
        "lost_s": {kind: {name: round(v, 2) for name, v in found.items()} for kind, found in lost.items()},
    }


def bad(result: dict[str, Any]) -> bool:
    """Whether a promise was broken in it."""
    unasked = any(not end["caused"] for end in result["ends"])
    return not result["whole"] or bool(result["hangs"]) or unasked or any(result["broken"].values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=216)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument(
        "--more", type=json.loads, default={}, help="other settings of rl, and `fleet` and `engine`, as JSON"
    )
    parser.add_argument("--only", nargs="+", metavar="KIND", default=[], help="kill these kinds of processes alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument(
        "--limit-s", type=float, default=math.inf, help="no process is killed after this time; the run goes to its end"
    )
    parser.add_argument("--no-twin", action="store_true")
    parser.add_argument(
        "--write", action="store_true", help=f"write the results into {RESULTS.name}, next to those of other seeds"
    )
    options = parser.parse_args()
    settings = SETTINGS | {"steps": options.steps, "seed": options.seed} | options.more
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    load = round(os.getloadavg()[0], 2)
    shares = shares_of(settings)
    if unknown := set(options.only) - set(shares):
        parser.error(f"--only {' '.join(sorted(unknown))}: such a run has {', '.join(shares)}")
    chosen = {kind: share for kind, share in shares.items() if kind in options.only or not options.only}
    kills = plan(options.seed, options.kills, options.steps, chosen)
    story = killed_run(options.checkpoint, folder, settings, kills, options.limit_s)
    result: dict[str, Any] = {"command": words(options), "machine": machine(), "settings": settings}
    result["load_1min"] = [load, round(os.getloadavg()[0], 2)]
    result |= figures(story) | {"broken": broken_promises(folder / "rl", settings)}
    if not options.no_twin:
        result["twin_s"] = round(twin_run(options.checkpoint, folder, settings), 1)
        result["broken"]["twin"] = differences(folder)
        result["lost_a_kill_s"] = round((result["wall_s"] - result["twin_s"]) / max(1, result["kills"]), 2)
    text = json.dumps(result, indent=1) + "\n"
    (folder / "chaos.json").write_text(text)
    if options.write:
        record(result, RESULTS)
    print(text)
    return int(bad(result))


def words(options: argparse.Namespace) -> str:
    """What repeats it, wherever its folder lies."""
    named = f"--folder DIR --kills {options.kills} --steps {options.steps} --seed {options.seed}"
    named += f" --only {' '.join(options.only)}" if options.only else ""
    return f"python benchmarks/chaos.py {named}" + (f" --more '{json.dumps(options.more)}'" if options.more else "")


def record(result: dict[str, Any], path: Path) -> None:
    """Into a file of runs by seed; `kills` is of all of them."""
    runs = json.loads(path.read_text())["runs"] if path.is_file() else {}
    runs[str(result["settings"]["seed"])] = result
    kinds = sum((Counter(run["by_kind"]) for run in runs.values()), Counter())
    kills, steps = (sum(run[name] for run in runs.values()) for name in ("kills", "steps"))
    document = {"kills": kills, "steps": steps, "by_kind": dict(sorted(kinds.items())), "runs": runs}
    path.write_text(json.dumps(document, indent=1) + "\n")


def differences(folder: Path) -> list[str]:
    """Between the trained tasks of the killed run and of its twin."""
    found = []
    for name in ("rl", "twin"):
        ledger = RlLedger(folder / name / "ledger.jsonl")
        ledger.close()
        tasks = {entry["group"]: entry["task"] for entry in ledger.entries if entry["kind"] == "admitted"}
        batches = [entry["groups"] for entry in ledger.entries if entry["kind"] == "batch"]
        found.append((len(batches), Counter(tasks[group] for groups in batches for group in groups)))
    (steps, mine), (others, twins) = found
    broken = [] if steps == others else [f"{steps} steps, the twin made {others}"]
    return broken + [f"{task} differs in how often it is trained" for task in sorted((mine - twins) + (twins - mine))]


if __name__ == "__main__":
    sys.exit(main())
