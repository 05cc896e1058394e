"""What becomes of draft layers in RL, with lessons and without: `python benchmarks/rl_drafts.py --folder DIR`. About twenty minutes.

Two RL runs of the laptop recipe from the committed SFT checkpoint, of different seeds. One new draft layer is taught, behind the
checkpoint's trunk, by the rollouts of the first; then the recorded batches of the second are trained again with each of several ways
of lessons (`rl.drafts`). The program checks that the trunk is bit for bit the same in all of them. So only the layer's weights differ.
Acceptance (rule `coupled`, by which the engine accepts) is measured after each step, under the new weights, on that step's rollouts
before any lesson on them. Core-seconds are those of the median step: with lessons every 4th step, one without. Writes
`benchmarks/results/rl_drafts.json`; run again on the same folder it goes on.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from statistics import mean, median
from typing import Any

from etude.core.events.log import EventLog
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import with_drafts
from etude.learn.train.fresh_drafts import FreshDrafts
from etude.learn.train.mtp_settings import FreshDraftsSettings
from etude.learn.train.settings import OptimizerSettings
from etude.learn.weights.state import state_digest
from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.machine import machine, versions
from etude.rl.learner import Learner
from etude.rl.ledger import RlLedger, fold
from etude.rl.observer import EventLogObserver
from etude.rl.run import run_rl
from etude.rl.run_context import RunContext
from etude.rl.settings import RlSettings
from etude.rl.store import GroupStore
from etude.tasks.generate.exercises.source import ExerciseSource

CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "sft-nano"
# `never` needs lessons too weak to change anything, so that acceptance is measured in the same places.
NEVER = {"optimizer": {"matrices": "adamw", "adam_lr": 1e-12}, "router_bias_rate": 0.0}
WAYS: dict[str, dict[str, Any]] = {
    "never": NEVER,
    "every step, Muon 0.005, AdamW 1e-3": {},
    "every 4th step, Muon 0.005, AdamW 1e-3": {"every": 4},
    "every step, AdamW 1e-3": {"optimizer": {"matrices": "adamw", "adam_lr": 1e-3}},
    "every step, Muon 0.02, AdamW 3e-3": {"optimizer": {}},
    "every 4th step, Muon 0.02, AdamW 3e-3": {"every": 4, "optimizer": {}},
}
# How the layer is taught that the runs begin with: times over all rollouts of the first run, and the rates of each time over Muon's and
# AdamW's defaults.
RATES = (1.0, 0.5, 0.15)
PART = 4  # groups of a lesson


def a_run(recipe: Recipe, folder: Path, **changes: Any) -> dict[int, list[int]]:
    """The groups of each step."""
    if not (folder / "summary.json").exists():
        run_rl(
            RunContext(
                recipe.rl.model_copy(update={"keep_sessions": 0} | changes),
                CHECKPOINT,
                folder,
                ExerciseSource(recipe.exercises),
                recipe.harness,
                recipe.engine,
                recipe.sandbox,
                EventLogObserver(EventLog.null()),
            )
        )
    return fold(RlLedger(folder / "ledger.jsonl").entries).batches


def drafted(folder: Path, settings: RlSettings) -> Path:
    """The checkpoint with a draft layer that the groups of this run taught."""
    out = folder.parent / "drafted"
    if out.exists():
        return out
    model, store = with_drafts(load_checkpoint(CHECKPOINT), 1, seed=0), GroupStore(folder / "groups")
    groups = store.groups()
    for rate in RATES:
        optimizer = OptimizerSettings(muon_lr=0.02 * rate, adam_lr=3e-3 * rate)
        drafts = FreshDrafts(model, FreshDraftsSettings(every=1, optimizer=optimizer), settings.update)
        figures: dict[str, float] = {}
        for lesson, first in enumerate(range(0, len(groups), PART)):
            figures = drafts.after(
                lesson, [rollout for group in groups[first : first + PART] for rollout in store.load(group)]
            )
        print(f"taught once over, rates times {rate}; of the last lesson: {figures}", flush=True)
    save_checkpoint(model, out, CHECKPOINT)
    return out


def way(
    checkpoint: Path, folder: Path, settings: RlSettings, batches: dict[int, list[int]], changes: dict[str, Any]
) -> dict[str, Any]:
    """Every step's acceptance under one way of lessons."""
    drafts = FreshDraftsSettings.model_validate({"every": 1, "measured_tokens": 2048} | changes)
    learner = Learner(checkpoint, folder, settings.model_copy(update={"drafts": drafts}), 1)
    curve, spent = [], []
    for step in sorted(batches):
        trained = learner.train(batches[step])
        if "draft_acceptance_1" in trained.figures:
            curve.append((step + 1, round(trained.figures["draft_acceptance_1"], 4)))
        spent.append(trained.cpu_s)
    trunk = {name: t for name, t in learner.trainer.model.state_dict().items() if not name.startswith("mtp.")}
    return {"trunk": state_digest(trunk), "step_cpu_s": round(median(spent), 3), "curve": curve}


def thirds(ways: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    """Mean acceptance in each third of the steps at which all ways were measured."""
    curves = {name: dict(found["curve"]) for name, found in ways.items()}
    steps = sorted(set.intersection(*(set(curve) for curve in curves.values())))
    parts = [steps[len(steps) * n // 3 : len(steps) * (n + 1) // 3] for n in range(3)]
    return {name: [round(mean(curve[step] for step in part), 3) for part in parts] for name, curve in curves.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for the run; kept")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "rl_drafts.json")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    recipe = read_recipe([find_recipe("laptop")], [f"rl.steps={options.steps}", "rl.eval_every=0"])
    folder, texts = options.folder / "rl", options.folder / "texts"
    a_run(recipe, texts, seed=1)
    batches = a_run(recipe, folder)
    update = recipe.rl.update.model_copy(update={"temperature": recipe.harness.temperature})
    settings = recipe.rl.model_copy(update={"update": update})
    checkpoint = drafted(texts, settings)
    result: dict[str, Any] = {"machine": machine(), "versions": versions(), "steps": options.steps, "ways": {}}
    for number, (name, changes) in enumerate(WAYS.items()):
        place = options.folder / f"way-{number}"
        place.mkdir(exist_ok=True)
        if not (place / "groups").exists():
            (place / "groups").symlink_to(folder.resolve() / "groups")
        done = place / "found.json"
        if not done.exists():
            done.write_text(json.dumps(way(checkpoint, place, settings, batches, changes)), encoding="utf-8")
        found = json.loads(done.read_text(encoding="utf-8"))
        result["ways"][name] = found
    means = thirds(result["ways"])
    for name, found in result["ways"].items():
        found["thirds"] = means[name]
        print(f"{name}: {means[name]}, median step {found['step_cpu_s']} core-seconds", flush=True)
    trunks = {found["trunk"] for found in result["ways"].values()}
    assert len(trunks) == 1, f"lessons changed the trunk: {trunks}"
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
