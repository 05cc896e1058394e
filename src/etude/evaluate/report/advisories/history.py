"""What the rules read: the current state of a run, taken from its files once. Pure data, so that a test writes any history down."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

RECENT = 8  # steps that "lately" means: at 100 rollouts each a share is known to a few points
FEWEST_STEPS = 8  # with fewer, no median, no drift and no collapse is reported
RL = "rl"


@dataclass(frozen=True)
class Steps:
    """One stage's steps in order: when each ended, and its figures."""

    times: Sequence[float]
    rows: Sequence[dict[str, Any]]  # with "step"
    finished: bool = False  # or past its last step, and busy with what comes after

    def of(self, name: str) -> list[float]:
        """The figure of the steps that have it."""
        return [float(row[name]) for row in self.rows if isinstance(row.get(name), int | float)]

    def lately(self, name: str, count: int = RECENT) -> float | None:
        """Its mean over the last steps; None if no step has it."""
        found = self.of(name)[-count:]
        return statistics.fmean(found) if found else None


@dataclass(frozen=True)
class RunState:
    """`now` and `alive` are of the moment of reading: without a process at work nothing can be stalled."""

    stages: dict[str, Steps] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)  # as resolved
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)  # of finished stages
    ends: Counter[str] = field(default_factory=Counter)  # of the latest rollouts, how they ended
    faults: Counter[str] = field(default_factory=Counter)  # of the latest rollouts and groups, by class
    attempts: int = 0  # that `ends` and `faults` are of
    lost: Counter[str] = field(default_factory=Counter)  # attempts given up meanwhile, by class
    judged: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # policy and criterion -> passes decided, not decided
    damaged: dict[str, str] = field(default_factory=dict)  # files that can't be read, with the reason
    rubrics: int = 0  # of a bench run: tasks of its suite that have one
    judge: str = ""  # of a bench run: who was named to judge
    now: float = 0.0
    alive: bool = False

    @property
    def rl(self) -> Steps:
        return self.stages.get(RL, Steps((), ()))
