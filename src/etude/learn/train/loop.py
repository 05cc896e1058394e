"""The one training loop: step, clip, skip what is not finite, save, resume, stop in time.

Promises: after a kill the run goes on bit-identical to one that was never killed (same data order, optimizer and random
state, number of threads; with a time budget the learning rate follows the clock, so there only a run by `steps` is), and a step
whose loss or gradient is not finite never touches the weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from etude.core.events.log import EventLog
from etude.learn.model.adapters import load_trained_state, trained_state
from etude.learn.parallel.shared_training import ALONE, OptimizedParameters, SharedTraining
from etude.learn.train.batch import BatchSource, TrainBatch
from etude.learn.train.checkpoint import load_state, newest_state, save_state
from etude.learn.train.context_share import share_of
from etude.learn.train.optimizer import Optimizers
from etude.learn.train.schedule import lr_factor
from etude.learn.train.settings import LoopSettings, ScheduleSettings
from etude.learn.train.watch import TrainingWatch

# A spike is judged against the mean of about the last 1 / (1 - 0.95) = 20 losses, and not before as many were seen.
MEAN_DECAY = 0.95
MEAN_WARMUP_STEPS = 20
# A state is saved after this time also where `checkpoint_every` steps take longer: a stopped run of a large model loses no more.
SAVE_AFTER_S = 600.0


class OtherData(Exception):
    """A saved state was trained on other data than a resumed run is given."""


class TrainingDiverged(Exception):
    """Too many bad steps one after another."""


@dataclass
class TrainingProgress:
    """The loop's own state; saved with the weights."""

    step: int = 0
    core_s: float = 0.0
    tokens: int = 0
    skipped: int = 0
    bad_in_a_row: int = 0
    mean_loss: float = 0.0
    good_steps: int = 0
    stopped: str = ""  # why a watch ended the stage


@dataclass(frozen=True)
class TrainingResult:
    """What a stage did. `loss` is the moving mean at the end; `stopped` says why it ended before its time, if it did."""

    steps: int
    core_s: float
    tokens: int
    skipped: int
    loss: float
    stopped: str = ""


@dataclass
class TrainingLoop:
    """`loss` gives a scalar with its graph; `after_step` runs after each step that changed the weights (router bias)."""

    stage: str
    model: nn.Module
    optimizers: Optimizers
    source: BatchSource
    loss: Callable[[TrainBatch], Tensor]
    after_step: Callable[[], dict[str, float]]
    settings: LoopSettings
    schedule: ScheduleSettings
    out: Path
    log: EventLog
    watches: Sequence[TrainingWatch] = ()
    shared: SharedTraining = ALONE
    progress: TrainingProgress = field(default_factory=TrainingProgress)

    def run(self) -> TrainingResult:
        """Trains to the end of the budget or of the data; resumes from `out/state` if it holds a state."""
        if self.settings.threads is not None:
            torch.set_num_threads(self.settings.threads)
        self._resume()
        self.model.train()
        saved_at, saved_s = self.progress.step, time.monotonic()
        while self._done() < 1.0 and not self.progress.stopped:
            started = time.process_time()
            batch = self.source.next()
            if batch is None:
                break
            figures = self._step(batch)
            self.progress.core_s += float(self.shared.total(torch.tensor(time.process_time() - started)))
            self._report(figures)
            self._watch()
            late = self.shared.same(time.monotonic() - saved_s > SAVE_AFTER_S)
            if self.progress.stopped or late or self.progress.step % self.settings.checkpoint_every == 0:
                self._save()
                saved_at, saved_s = self.progress.step, time.monotonic()
        if saved_at != self.progress.step:
            self._save()
        self.model.eval()
        p = self.progress
        self.log.progress(self.stage, p.step, p.step, loss=p.mean_loss)
        return TrainingResult(p.step, p.core_s, p.tokens, p.skipped, p.mean_loss, p.stopped)

    def _watch(self) -> None:
        """Every watch looks at every step, on the first rank; the first that wants to stop gives the reason."""
        now = self.progress.step, self._done()
        if self.shared.same(any(watch.due(*now) for watch in self.watches)):
            self.shared.show()
        reasons = [watch.after(*now) for watch in self.watches]
        self.progress.stopped = self.shared.same(next(filter(None, reasons), ""))
        if self.progress.stopped:
            self.shared.take()  # a watch may have gone back to earlier weights
            self.log.note(self.stage, f"stopped: {self.progress.stopped}")

    def _step(self, batch: TrainBatch) -> dict[str, float]:
        p = self.progress
        factor = lr_factor(self.schedule, self._done())
        self.optimizers.set_factor(factor)
        mine = share_of(batch, self.shared)
        loss = self.loss(mine.to(next(self.model.parameters()).device))
        value = float(self.shared.total(loss.detach()))
        figures = {"loss": value, "lr_factor": factor}
        if fault := self._fault(value):
            return figures | self._skip(fault, value)
        loss.backward()
        norm = self.optimizers.clip(self.shared.norm)
        if not math.isfinite(norm):
            return figures | self._skip("gradient is not finite", norm)
        self.optimizers.step()
        self.optimizers.zero_grad()
        p.step += 1
        p.tokens += batch.token_count
        p.bad_in_a_row = 0
        p.good_steps += 1
        decay = min(MEAN_DECAY, 1 - 1 / p.good_steps)  # a plain mean at first
        p.mean_loss = decay * p.mean_loss + (1 - decay) * value
        return figures | {"grad_norm": norm} | self.after_step()

    def _fault(self, loss: float) -> str | None:
        if not math.isfinite(loss):
            return "loss is not finite"
        p = self.progress
        if p.good_steps >= MEAN_WARMUP_STEPS and loss > self.settings.spike_factor * p.mean_loss:
            return f"loss is above {self.settings.spike_factor:g} x its moving mean {p.mean_loss:.3f}"
        return None

    def _skip(self, fault: str, value: float) -> dict[str, float]:
        p = self.progress
        self.optimizers.zero_grad()
        p.step += 1
        p.skipped += 1
        p.bad_in_a_row += 1
        self.log.note(self.stage, f"step {p.step} skipped: {fault} ({value:.4g})")
        if p.bad_in_a_row >= self.settings.bad_steps_limit:
            raise TrainingDiverged(
                f"{self.stage}: {p.bad_in_a_row} bad steps in a row, the last because {fault} ({value:.4g}); "
                f"lower the learning rate or look at the data of steps {p.step - p.bad_in_a_row + 1}-{p.step}"
            )
        return {"skipped": 1.0}

    def _done(self) -> float:
        """Share of the run that is spent: by steps, data or core time, whichever is furthest."""
        p = self.progress
        limits = [n for n in (self.settings.steps, self.source.total_batches) if n is not None]
        shares = [p.step / min(limits)] if limits else []
        if self.settings.budget_core_s is not None:
            shares.append(p.core_s / self.settings.budget_core_s)
        return max(shares)

    def _report(self, figures: dict[str, float]) -> None:
        p = self.progress
        done = max(self._done(), 1e-9)
        self.log.progress(self.stage, p.step, max(p.step, round(p.step / done)), loss=p.mean_loss)
        if p.step % self.settings.log_every == 0 or "skipped" in figures:
            speed = p.tokens / max(p.core_s, 1e-9)
            self.log.metric(
                self.stage, p.step, mean_loss=p.mean_loss, tokens=p.tokens, tokens_per_core_s=speed, core_s=p.core_s,
                **figures,
            )  # fmt: skip

    def _save(self) -> None:
        state: dict[str, Any] = {
            "progress": vars(self.progress).copy(),
            "model": trained_state(self.model),
            "optimizers": self.optimizers.state_dict(),
            "source": self.source.state(),
            "data": self._data,
            "watches": [watch.state() for watch in self.watches],
            "torch_rng": torch.get_rng_state(),
        }
        keep = self.settings.keep_checkpoints
        save_state(self.out / "state", self.progress.step, state, keep, self.shared, self._optimized)

    @property
    def _optimized(self) -> OptimizedParameters:
        return [[p for group in part.param_groups for p in group["params"]] for part in self.optimizers.parts]

    @property
    def _data(self) -> str:
        """Names the data; empty for a source without a digest. A state of an earlier release has the source's `former_digest`."""
        return getattr(self.source, "digest", "")

    def _resume(self) -> None:
        path = newest_state(self.out / "state")
        if path is None:
            for watch in self.watches:
                watch.begin()
            return
        state = load_state(path, self.shared, self._optimized)
        if state.get("data", self._data) not in (self._data, getattr(self.source, "former_digest", self._data)):
            raise OtherData(
                f"{path} was trained on other data than this run has: its place in the data means nothing there. Give it the data that it had, or "
                f"remove {path.parent} to begin the stage again"
            )
        load_trained_state(self.model, state["model"])
        changed = self.optimizers.load_state_dict(state["optimizers"])
        self.source.restore(state["source"])
        if self.shared.rank == 0:
            for watch, seen in zip(self.watches, state["watches"], strict=True):
                watch.restore(seen)
        self.progress = TrainingProgress(**state["progress"])
        torch.set_rng_state(state["torch_rng"])
        self.log.note(self.stage, f"going on after step {self.progress.step}")
        if changed:
            self.log.note(self.stage, f"with other settings of the optimizer than before: {', '.join(changed)}")
