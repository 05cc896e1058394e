"""What goes wrong in a fake sandbox: at given rates from a seed, or at exactly the n-th operation of a kind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Fault = Literal["create_fails", "dies_in_command", "partial_write", "disk_full", "slow"]


@dataclass(frozen=True)
class FaultPlan:
    """`rates`: a share of the operations at which the fault can happen. `at`: the numbers, from 1, at which it does."""

    rates: Mapping[Fault, float] = field(default_factory=dict)
    at: Mapping[Fault, frozenset[int]] = field(default_factory=dict)
    slow_s: float = 30.0


class Faults:
    """Draws from a plan. Each kind counts the operations at which it could have happened; `done` those at which it did."""

    def __init__(self, plan: FaultPlan, dice: random.Random) -> None:
        self.plan, self._dice = plan, dice
        self._asked: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    def strikes(self, fault: Fault) -> bool:
        self._asked[fault] += 1
        rate = self.plan.rates.get(fault, 0.0)
        hit = self._asked[fault] in self.plan.at.get(fault, ()) or (rate > 0 and self._dice.random() < rate)
        self.done[fault] += hit
        return hit
