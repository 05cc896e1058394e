"""Stage controls: what the same compute would have bought without reinforcement learning. Two checkpoints to compare with.

- `competent_sft`: the base, fine-tuned on the demonstrations of good judgement alone, for as many steps as the sft stage took.
- `rewarded_sft`: the SFT checkpoint, fine-tuned on rollouts that were fully rewarded, at RL's core-minutes. It is given RL's
  own rollouts, better ones than it could have sampled itself, so their price is counted as RL's was; what it spends itself
  is the CPU time that RL's trainer spent (less if `sft.loop.budget_core_s` caps it: the ci recipe has no time for more).

Each runs in a process of its own on one thread: two cores make both at once.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from etude.events.log import EventLog
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.rl.store import GroupStore
from etude.run.stage import Context, StageError
from etude.run.stages.base import CHECKPOINT
from etude.run.stages.rl import sft_checkpoint
from etude.run.stages.sft import SESSIONS, competent_segments
from etude.trace.segment import Segment
from etude.train.settings import LoopSettings, OptimizerSettings, ScheduleSettings, SftSettings
from etude.train.sft import run_sft

COMPETENT, REWARDED = "competent_sft", "rewarded_sft"


@dataclass(frozen=True)
class Control:
    """One control, ready to be trained in another process."""

    name: str
    start: Path  # checkpoint
    data: Path  # sessions of the sft stage, or groups of the rl stage
    settings: SftSettings
    folder: Path
    events: Path


def run(context: Context) -> None:
    """Leaves `<control>/checkpoint/` and `summary.json`. A control whose inputs the run lacks is left out."""
    controls = [control for control in (_competent(context), _rewarded(context)) if control]
    spawn = multiprocessing.get_context("spawn")  # a fork would carry torch's threads half-alive
    processes = {control.name: spawn.Process(target=train, args=(control,), name=control.name) for control in controls}
    for process in processes.values():
        process.start()
    try:
        for process in processes.values():
            process.join()
    finally:
        for process in processes.values():
            process.terminate()
    failed = [name for name, process in processes.items() if process.exitcode != 0]
    if failed:
        raise StageError(f"control {', '.join(failed)} did not finish; its message is above")
    context.summarize({c.name: json.loads((c.folder / "result.json").read_text()) for c in controls})


def train(control: Control) -> None:
    """One control, from its start to its checkpoint; goes on where a killed one stopped."""
    log = EventLog(control.events)
    segments = list(competent_segments(control.data) if control.name == COMPETENT else rewarded_segments(control.data))
    model = load_checkpoint(control.start)
    result = run_sft(control.settings, model, segments, control.folder, log, stage=control.name)
    save_checkpoint(model, control.folder / CHECKPOINT, tokenizer_from=control.start)
    facts = {"segments": len(segments), "steps": result.steps, "tokens": result.tokens, "core_s": result.core_s}
    (control.folder / "result.json").write_text(json.dumps(facts) + "\n")


def rewarded_segments(groups: Path) -> Iterator[Segment]:
    """Segments of every rollout that solved its task."""
    store = GroupStore(groups)
    for path in sorted(groups.glob("*.zst")):
        for rollout in store.load(int(path.stem)):
            if rollout.rewards.get("outcome", 0.0) >= 1.0:
                yield from rollout.segments


def _competent(context: Context) -> Control | None:
    base = context.of("base") / CHECKPOINT
    summary = context.of("sft") / "summary.json"
    if not summary.is_file() or not base.is_dir():
        return None
    steps = json.loads(summary.read_text())["steps"]
    settings = _limited(context.recipe.sft, steps=steps, budget_core_s=None)
    return _control(context, COMPETENT, base, context.of("sft") / SESSIONS, settings)


def _rewarded(context: Context) -> Control | None:
    groups = context.of("rl") / "groups"
    summary = context.of("rl") / "summary.json"
    if not summary.is_file():
        return None
    trained_s = [point["train_s"] for point in json.loads(summary.read_text())["curve"]]
    budget_s = sum(trained_s)  # one thread: wall is CPU time
    if cap_s := context.recipe.sft.loop.budget_core_s:
        budget_s = min(budget_s, cap_s)
    settings = _limited(context.recipe.sft, steps=None, budget_core_s=budget_s).model_copy(
        update={
            # The trainer's own optimizer: restarting Muon at its peak rate would undo the checkpoint it starts from.
            "optimizer": OptimizerSettings(matrices="adamw", low_rank="adamw", adam_lr=context.recipe.rl.update.lr),
            "schedule": ScheduleSettings(shape="wsd"),
            "observation_weight": 0.0,
        }
    )
    return _control(context, REWARDED, sft_checkpoint(context), groups, settings)


def _limited(settings: SftSettings, *, steps: int | None, budget_core_s: float | None) -> SftSettings:
    """`settings` on one thread with another end, and as many epochs as fit."""
    limits = settings.loop.model_dump() | {"steps": steps, "budget_core_s": budget_core_s, "threads": 1}
    return settings.model_copy(update={"loop": LoopSettings(**limits), "epochs": 1000.0})


def _control(context: Context, name: str, start: Path, data: Path, settings: SftSettings) -> Control:
    folder = context.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    return Control(name, start, data, settings, folder, context.run / "events.jsonl")
