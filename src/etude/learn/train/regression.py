"""The guard against forgetting: held-out short documents are read at a fixed interval of steps; a stage that makes them worse is stopped.

A check is worse if its bits a byte lie more than `bar` above the best so far, the one before the first step included. After
`checks` worse ones in a row the weights go back to the newest check that was not, so what was learnt until then is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from etude.core.events.log import EventLog
from etude.learn.model.adapters import load_trained_state, trained_state
from etude.learn.train.checkpoint import load_state, newest_state, save_state
from etude.learn.train.settings import RegressionSettings

Measure = Callable[[], float]  # bits a byte of the model as it is now


@dataclass
class RegressionCheck:
    """Saved with the stage."""

    best: float  # bits a byte, as `good`
    good: float
    good_step: int = 0
    worse: int = 0


class Regression:
    """Weights of the newest good check lie in `folder`; one copy, however long the stage."""

    def __init__(
        self, settings: RegressionSettings, model: nn.Module, measure: Measure, folder: Path, stage: str, log: EventLog
    ) -> None:
        self._settings = settings
        self._model = model
        self._measure = measure
        self._folder = folder
        self._stage = stage
        self._log = log
        self._checked: RegressionCheck | None = None  # until the stage begins or is resumed

    def begin(self) -> None:
        """The measure before the first step."""
        bits = self._measure()
        self._checked = RegressionCheck(best=bits, good=bits)
        self._keep(0, bits)

    def due(self, step: int, done: float) -> bool:
        return step % self._settings.every == 0

    def after(self, step: int, done: float) -> str:
        assert self._checked is not None  # begin
        if not self.due(step, done):
            return ""
        bits, bar = self._measure(), self._checked.best * (1 + self._settings.bar)
        self._log.metric(self._stage, step, regression_bits_per_byte=bits)
        if bits <= bar:
            self._checked.best = min(self._checked.best, bits)
            self._checked.worse = 0
            self._keep(step, bits)
            return ""
        self._checked.worse += 1
        if self._checked.worse < self._settings.checks:
            return ""
        return self._go_back(step, bits, bar)

    def _keep(self, step: int, bits: float) -> None:
        assert self._checked is not None
        self._checked.good_step, self._checked.good = step, bits
        save_state(self._folder, step, {"model": trained_state(self._model)}, keep=1)

    def _go_back(self, step: int, bits: float, bar: float) -> str:
        assert self._checked is not None
        path = newest_state(self._folder)
        assert path is not None  # _keep wrote it
        load_trained_state(self._model, load_state(path)["model"])
        return (
            f"step {step}: {bits:.4f} bits a byte on held-out short documents, {self._checked.worse} checks in a row above "
            f"{bar:.4f} (regression.bar); the weights are those of step {self._checked.good_step} ({self._checked.good:.4f}). "
            "Lower the learning rate or raise replay to go further"
        )

    def state(self) -> dict[str, Any]:
        return {} if self._checked is None else vars(self._checked).copy()

    def restore(self, state: dict[str, Any]) -> None:
        self._checked = RegressionCheck(**state) if state else None
