"""A short training in one rank of a layout, by the loop of the supervised stages."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from layout_lab import VOCABULARY, model_of

from etude.core.events.log import EventLog
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.parallel.shared_training import ALONE
from etude.learn.train.batch import TrainBatch, padded_batch, shared_batch
from etude.learn.train.checkpoint import TrainingStateError
from etude.learn.train.loop import TrainingLoop
from etude.learn.train.next_token import NextToken
from etude.learn.train.optimizer import build_optimizers
from etude.learn.train.settings import LoopSettings, OptimizerSettings, ScheduleSettings

STEPS = 6


class Batches:
    """Batches of rows that begin alike and of rows that do not, in turns, of different numbers of rows."""

    total_batches, digest = None, ""

    def __init__(self, end: int) -> None:
        self.step, self.end = 0, end

    def next(self) -> TrainBatch | None:
        if self.step == self.end:
            return None  # as a run that was stopped there
        generator = np.random.default_rng(self.step)
        self.step += 1
        begin = generator.integers(0, VOCABULARY, 66)
        rows = [np.concatenate((begin, generator.integers(0, VOCABULARY, n))) for n in (9, 30, 4)[: 1 + self.step % 3]]
        weights = [(np.arange(len(row)) > 60).astype(np.float32) for row in rows]
        return (padded_batch if self.step % 2 else shared_batch)(rows, weights)

    def state(self) -> dict[str, Any]:
        return {"step": self.step}

    def restore(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


def trained(name: str, given: dict[str, int], folder: str, end: int, matrices: str) -> dict[str, Any]:
    """Trains to step `end` of STEPS, from the state in `folder` if there is one: the losses, and the weights by the names of one process."""
    model, shared = model_of(name), ALONE
    whole = model
    learner = NextToken(model, 0.01)
    if given:
        from etude.learn.parallel.shard import Meshes, shard_model
        from etude.learn.parallel.split_model import SplitModel

        meshes, whole = Meshes(ParallelLayout.model_validate(given)), model_of(name)
        shard_model(model, meshes)
        shared = SplitModel(model, meshes, whole)
        learner.share(shared)
    settings = OptimizerSettings.model_validate({"matrices": matrices, "adam_lr": 1e-3, "clip_norm": 0.5})
    log = EventLog(Path(folder) / "events.jsonl") if shared.rank == 0 else EventLog.null()
    loop = TrainingLoop(
        "sft", model, build_optimizers(model, settings), Batches(end), learner.loss, learner.after_step,
        LoopSettings(steps=STEPS, checkpoint_every=2, log_every=1), ScheduleSettings(), Path(folder), log, shared=shared,
    )  # fmt: skip
    result = loop.run()
    shared.show()
    weights = {key: tensor.detach().numpy() for key, tensor in whole.state_dict().items()}
    return {"loss": result.loss, "tokens": result.tokens, "weights": weights}


def largest_difference(found: dict[str, Any], wanted: dict[str, Any]) -> float:
    """Of the weights."""
    assert found.keys() == wanted.keys()
    return max(float(torch.from_numpy(np.abs(found[key] - wanted[key])).max()) for key in found)


def stopped_by_a_full_disk(name: str, given: dict[str, int], folder: str, largest: int) -> str:
    """What a training says that can write no file above `largest` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        trained(name, given, folder, STEPS, "adamw")
    except TrainingStateError as error:
        return str(error)
    return ""
