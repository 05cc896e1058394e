"""How much may still be spent: an attempt starts only if the dearest of its kind would fit. Pure: no clock, no file.

What an attempt will cost is not known before, so the dearest one seen of the same entrant is set aside for it; the first goes
alone, to be seen. An attempt that turns out dearer is stopped at the cap itself, unscored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class BudgetSpent(Exception):
    """The cap is reached: attempts in flight are dropped unscored. Not a PolicyError, an attempt must not retry it."""


class Word(StrEnum):
    """May an attempt start?"""

    go = "go"
    wait = "wait"  # until one of those in flight has ended
    stop = "stop"  # the cap leaves no room for it


class Purse:
    """Dollars of one run. `cap` None: no bound. `spent` is what earlier runs of the same folder spent."""

    def __init__(self, cap: float | None, spent: float = 0.0, dearest: Mapping[str, float] | None = None) -> None:
        self.cap = cap
        self.spent = spent
        self._dearest = dict(dearest or {})
        self._aside: dict[tuple[str, str], float] = {}  # (entrant, attempt) in flight -> what is set aside for it
        self._paid: dict[tuple[str, str], float] = {}

    def word(self, entrant: str) -> Word:
        """Whether an attempt by `entrant` may start now."""
        if self.cap is None:
            return Word.go
        if self.spent >= self.cap:
            return Word.stop
        known = self._dearest.get(entrant)
        if known is None:
            return Word.wait if self._aside else Word.go
        expected = self.spent + known + sum(max(0.0, aside - self._paid[a]) for a, aside in self._aside.items())
        if expected <= self.cap:
            return Word.go
        return Word.wait if self._aside else Word.stop

    def start(self, entrant: str, attempt: str) -> None:
        """An attempt starts: set its share aside."""
        self._aside[entrant, attempt] = self._dearest.get(entrant, 0.0)
        self._paid[entrant, attempt] = 0.0

    def pay(self, entrant: str, attempt: str, dollars: float) -> None:
        """A turn was answered. Raises BudgetSpent once more than the cap is gone."""
        self.spent += dollars
        self._paid[entrant, attempt] = self._paid.get((entrant, attempt), 0.0) + dollars
        if self.cap is not None and self.spent > self.cap:
            raise BudgetSpent(f"${self.spent:.4f} of --max-cost {self.cap:g} are spent")

    def end(self, entrant: str, attempt: str) -> None:
        """An attempt is over: what was left of its share is free again."""
        paid = self._paid.pop((entrant, attempt), 0.0)
        self._aside.pop((entrant, attempt), None)
        self._dearest[entrant] = max(paid, self._dearest.get(entrant, 0.0))

    def why(self, entrant: str) -> str:
        """What stopped it, for the person."""
        dearest = self._dearest.get(entrant, 0.0)
        return (
            f"${self.spent:.4f} of --max-cost {self.cap:g} are spent, and the next attempt by {entrant} may cost "
            f"${dearest:.4f}; a higher --max-cost goes on from here"
        )
