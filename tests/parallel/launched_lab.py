"""A script for torchrun: two stages over its ranks. Arguments: a folder, and how many steps this life lasts; the second rank dies after as many as a
third argument says, in its first life."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from layout_lab import model_of
from loop_lab import Batches

from etude.core.events.log import EventLog
from etude.learn.parallel.launched import LaunchedWorld, follow
from etude.learn.train.loop import TrainingLoop
from etude.learn.train.pretrain import learner_of
from etude.learn.train.settings import PhaseSettings
from etude.learn.train.stage import train_stage

STEPS = 4
LAYOUTS = {"first": {"shard": 2}, "second": {"shard": 2, "experts": 2}}


def train(folder: Path, layouts: dict[str, dict[str, int]], end: int) -> None:
    """Each stage, one after the other, and its weights in a file."""
    for stage, layout in layouts.items():
        loop = {"steps": STEPS, "checkpoint_every": 1, "parallel": layout}
        settings = PhaseSettings.model_validate({"optimizer": {"adam_lr": 1e-3, "matrices": "adamw"}, "loop": loop})
        model, out = model_of("qwen3_moe"), folder / stage
        out.mkdir(parents=True, exist_ok=True)
        learner = learner_of(model, settings.router_bias_rate, 2, settings.lora)
        key, log = "pretrain.short", EventLog(out / "events.jsonl")
        train_stage(stage, key, settings, model, model, Batches(end), learner, out, log)
        torch.save(model.state_dict(), out / "weights.pt")


def die_after(steps: int) -> None:
    step, done = TrainingLoop._step, []

    def counted(loop: TrainingLoop, batch: object) -> dict[str, float]:
        if len(done) == steps:
            os._exit(9)
        done.append(1)
        return step(loop, batch)  # type: ignore[arg-type]

    TrainingLoop._step = counted  # type: ignore[method-assign]


def main(folder: str, end: str, deadly: str = "") -> None:
    world = LaunchedWorld.find()
    assert world is not None
    if world.rank:
        if deadly and world.life == "0":
            die_after(int(deadly))
        print(f"followed {follow(world)} stages")
        return
    with world.leading():
        train(Path(folder), LAYOUTS, int(end))


if __name__ == "__main__":
    main(*sys.argv[1:])
