"""One reward component: a name, what it needs, and a number for a rollout. What it weighs is `mix.py`'s business.

`exact` components enter as they are (outcome, KL, length). A `penalty` is at most 0 and a `bonus` at least 0; both are
behaviour, so `mix.py` bounds them, and pays a bonus to solved rollouts alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from etude.core.trace.segment import Rollout
from etude.rl.settings import RlSettings

Kind = Literal["exact", "penalty", "bonus"]


@dataclass(frozen=True)
class RewardInput:
    """What a component may look at. `k1`: the rollout's `divergence.k1_sum`; None where no reference was scored."""

    rollout: Rollout
    settings: RlSettings
    k1: float | None = None

    def counter(self, name: str) -> float:
        """A hygiene counter (`docs/counters.md`)."""
        return self.rollout.counters[name]


class Component(Protocol):
    """Pure: the same rollout and settings have the same value."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def needs(self) -> tuple[str, ...]:
        """Counters without which there is no value."""
        ...

    def value(self, subject: RewardInput) -> float | None:
        """In the component's own unit, before its weight; None: this rollout has none (a judge was silent)."""
        ...


@dataclass(frozen=True)
class Measure:
    """A component that is one function."""

    name: str
    kind: Kind
    needs: tuple[str, ...]
    of: Callable[[RewardInput], float | None]

    def value(self, subject: RewardInput) -> float | None:
        return self.of(subject)
