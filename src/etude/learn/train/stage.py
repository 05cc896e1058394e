"""The training of a supervised stage: in this process, or over the ranks of a layout, which are processes of this machine.

Over ranks the stage's own process is the first one. It alone has the data, the watches, the log and the whole model, which gets the weights back at
the end and wherever a watch looks at them; the others get a copy of the model without weights, and every batch from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from etude.core import allocator
from etude.core.events.log import EventLog
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import computing
from etude.learn.model.device import on_device
from etude.learn.model.heap import LARGE_PARAMETERS, return_freed_memory
from etude.learn.model.transformers_backend.language_model import TransformersLM
from etude.learn.parallel.shared_training import ALONE, SharedTraining, without_weights
from etude.learn.train.batch import BatchSource, TrainBatch
from etude.learn.train.loop import TrainingLoop, TrainingResult
from etude.learn.train.optimizer import build_optimizers
from etude.learn.train.settings import LoopSettings, OptimizerSettings, ScheduleSettings
from etude.learn.train.sources import DealtSource
from etude.learn.train.watch import TrainingWatch


class TrainingStage(Protocol):
    """The settings that every supervised stage has."""

    @property
    def optimizer(self) -> OptimizerSettings: ...
    @property
    def schedule(self) -> ScheduleSettings: ...
    @property
    def loop(self) -> LoopSettings: ...


class StageLearner(Protocol):
    """The objective of a stage; holds no parameters of the model, which may be new objects on another device."""

    def loss(self, batch: TrainBatch) -> Tensor: ...
    def after_step(self) -> dict[str, float]: ...
    def share(self, shared: SharedTraining) -> None: ...


@dataclass(frozen=True)
class StageTraining:
    """What all ranks of a stage need."""

    stage: str
    settings: TrainingStage
    model: nn.Module
    taught: nn.Module  # the model or a part of it
    learner: StageLearner
    out: Path

    def without_weights(self) -> StageTraining:
        """The same with parameters on the meta device; buffers keep their values."""
        return without_weights(self, self.model)

    def run(
        self, source: BatchSource, log: EventLog, watches: Sequence[TrainingWatch], shared: SharedTraining
    ) -> TrainingResult:
        """Trains where the model is."""
        how = self.settings.loop
        with computing(self.model, how.compute, how.recompute, how.expert_products):
            loop = TrainingLoop(
                stage=self.stage,
                model=self.model,
                optimizers=build_optimizers(self.taught, self.settings.optimizer),
                source=source,
                loss=self.learner.loss,
                after_step=self.learner.after_step,
                settings=how,
                schedule=self.settings.schedule,
                out=self.out,
                log=log,
                watches=watches,
                shared=shared,
            )
            return loop.run()


def train_stage(
    stage: str,
    key: str,
    settings: TrainingStage,
    model: nn.Module,
    taught: nn.Module,
    source: BatchSource,
    learner: StageLearner,
    out: Path,
    log: EventLog,
    watches: Sequence[TrainingWatch] = (),
) -> TrainingResult:
    """Trains `taught`, which is `model` or a part of it, in place, where the settings of the table `key` say; back on the CPU after it. Raises
    ValueError for a layout that the model can't have, RankLost where another rank fails."""
    training = StageTraining(stage, settings, model, taught, learner, out)
    if settings.loop.parallel.ranks > 1:
        own = isinstance(model, CausalLM) and not isinstance(model, TransformersLM)
        experts = model.config.experts if isinstance(model, CausalLM) else 0
        how = settings.loop
        how.parallel.require(f"{key}.loop", experts=experts, own=own)
        return _over_ranks(training, key, source, log, watches)
    if sum(parameter.numel() for parameter in model.parameters()) >= LARGE_PARAMETERS:
        return_freed_memory()
        if settings.loop.device == "cpu" and not allocator.in_use():
            log.note(
                stage,
                f"glibc allocates the memory; with tcmalloc (Debian: {allocator.PACKAGE}) steps of a model of this size are faster",
            )
    with on_device(model, settings.loop.device, f"{key}.loop.device"):
        return training.run(source, log, watches, ALONE)


def _over_ranks(
    training: StageTraining, key: str, source: BatchSource, log: EventLog, watches: Sequence[TrainingWatch]
) -> TrainingResult:
    layout, model = training.settings.loop.parallel, training.model
    training = replace(
        training, out=training.out.resolve()
    )  # other machines' processes may have another working folder
    part = training.without_weights()
    log.note(
        training.stage,
        f"{layout.ranks} ranks: replicate {layout.replicate} x shard {layout.shard}, experts over {layout.experts}",
    )
    with _ranks(training, key, _other_rank, part):
        return _as_rank(part, model, source, log, watches)


def _ranks(training: StageTraining, key: str, work: Callable[..., None], *given: Any) -> AbstractContextManager[None]:
    """Those that torchrun started, or processes that this one starts. Raises ValueError where torchrun started another number, DeviceMissing where
    this machine has too few GPUs for its ranks."""
    from etude.learn.parallel.launched import LaunchedWorld, launched_ranks
    from etude.learn.parallel.rank_device import require_device
    from etude.learn.parallel.rank_processes import other_ranks

    how, world = training.settings.loop, LaunchedWorld.find()
    count = how.parallel.ranks
    require_device(how.device, count if world is None else world.of_machine, f"{key}.loop.device")
    if world is None:
        return other_ranks(count, how.device, work, *given)
    if world.size != count:
        raise ValueError(f"the layout has {count} ranks, and torchrun started {world.size}: start as many")
    return launched_ranks(world, training.out, how.device, work, *given)


def _other_rank(part: StageTraining) -> None:
    _as_rank(part, None, None, EventLog.null(), ())


def _as_rank(
    part: StageTraining,
    whole_model: nn.Module | None,
    source: BatchSource | None,
    log: EventLog,
    watches: Sequence[TrainingWatch],
) -> TrainingResult:
    from etude.learn.parallel.shard import Meshes
    from etude.learn.parallel.split_model import split_over

    assert isinstance(part.model, CausalLM)  # ParallelLayout.require
    if sum(parameter.numel() for parameter in part.model.parameters()) >= LARGE_PARAMETERS:
        return_freed_memory()
    how = part.settings.loop
    shared = split_over(part.model, Meshes(how.parallel, how.device), how.compute, whole_model)
    part.learner.share(shared)
    result = part.run(DealtSource(source, shared), log, watches, shared)
    shared.show()
    return result
