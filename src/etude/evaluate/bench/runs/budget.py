"""The budget of a bench run: an attempt starts only if the dearest of its kind would fit. Pure: no clock, no file.

The cost of an attempt is not known before it ends. The dearest attempt of the same participant is reserved for it; the first
attempt runs alone, to measure it. An attempt that costs more is stopped at the cap itself, unscored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from etude.agent.policy.protocol import FatalStageError
from etude.rollout.campaign import BudgetDecision


class BudgetSpent(FatalStageError):
    """The cap is passed: attempts in flight are dropped unscored, and none is retried."""


class RunBudget:
    """Dollars of one run. `cap` None: no bound. `spent`: dollars that earlier runs of the same folder spent."""

    def __init__(self, cap: float | None, spent: float = 0.0, dearest: Mapping[str, float] | None = None) -> None:
        self.cap = cap
        self.spent = spent
        self._dearest = dict(dearest or {})
        self._aside: dict[tuple[str, str], float] = {}  # (participant, attempt) in flight -> what is reserved for it
        self._paid: dict[tuple[str, str], float] = {}

    def decide(self, participant: str) -> BudgetDecision:
        """Whether an attempt by `participant` may start now."""
        if self.cap is None:
            return BudgetDecision.go
        if self.spent >= self.cap:
            return BudgetDecision.stop
        known = self._dearest.get(participant)
        if known is None:
            return BudgetDecision.wait if self._aside else BudgetDecision.go
        expected = self.spent + known + sum(max(0.0, aside - self._paid[a]) for a, aside in self._aside.items())
        if expected <= self.cap:
            return BudgetDecision.go
        return BudgetDecision.wait if self._aside else BudgetDecision.stop

    def start(self, participant: str, attempt: str) -> None:
        """An attempt starts: set its share aside."""
        self._aside[participant, attempt] = self._dearest.get(participant, 0.0)
        self._paid[participant, attempt] = 0.0

    def pay(self, participant: str, attempt: str, dollars: float) -> None:
        """A turn was answered. Raises BudgetSpent once more than the cap is gone."""
        self.spent += dollars
        self._paid[participant, attempt] = self._paid.get((participant, attempt), 0.0) + dollars
        if self.cap is not None and self.spent > self.cap:
            raise BudgetSpent(f"${self.spent:.4f} of --max-cost {self.cap:g} are spent")

    def end(self, participant: str, attempt: str) -> None:
        """An attempt is over: what was left of its share is free again."""
        paid = self._paid.pop((participant, attempt), 0.0)
        self._aside.pop((participant, attempt), None)
        self._dearest[participant] = max(paid, self._dearest.get(participant, 0.0))

    def stop_reason(self, participant: str) -> str:
        """What stopped it, for the person."""
        dearest = self._dearest.get(participant, 0.0)
        return (
            f"${self.spent:.4f} of --max-cost {self.cap:g} are spent, and the next attempt by {participant} may cost "
            f"${dearest:.4f}; a higher --max-cost goes on from here"
        )


@dataclass(frozen=True)
class ParticipantBudget:
    """The budget of a run as the campaign of one participant sees it: keys are those of its attempts."""

    run: RunBudget
    participant: str

    def decide(self, key: str) -> BudgetDecision:
        return self.run.decide(self.participant)

    def start(self, key: str) -> None:
        self.run.start(self.participant, key)

    def end(self, key: str) -> None:
        self.run.end(self.participant, key)

    def stop_reason(self, key: str) -> str:
        return self.run.stop_reason(self.participant)
