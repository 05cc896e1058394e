"""What a tracker has to do for us; adapters are `trackio.py` and `wandb.py`, and a test's recorder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class SinkError(RuntimeError):
    """The tracker can't be used; says what to do."""


@dataclass(frozen=True)
class Opening:
    """What a tracker receives at the start. `run_id` stays the same for the same folder, so that a tracker can go on."""

    project: str
    name: str
    run_id: str
    config: Mapping[str, Any] = field(default_factory=dict)


class Sink(Protocol):
    """One run at one tracker. Steps of a stage come in order; a step may come again with other figures after a resume."""

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Figures of one step of one stage."""
        ...

    def close(self) -> None:
        """Everything logged is out. Called once, also after a failure."""
        ...
