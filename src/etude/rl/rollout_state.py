"""The state machine of one rollout. Pure: the caller passes the time.

    queued  -> placed     a slot is free and the staleness window let its group in; the attempt asks for a sandbox
    queued  -> grading    the same, where an earlier life of the run was killed after the agent was done: what it left is graded
    placed  -> rolling    the sandbox is there, the agent works
    rolling -> grading    the agent is done, its files go to a fresh sandbox
    grading -> scored     there is a verdict; what the policy did wrong ends here too, with what its files earn (promise 8)
    scored  -> grouped    every rollout of the group is scored
    grouped -> trained    the group is in a batch, which happens once
    placed, rolling, grading -> failed    a fault of ours: nothing of the attempt counts
    failed  -> queued     the slot is tried again, as its next attempt
    rolling, grading -> placed    the same attempt restarts in a fresh sandbox

Invariants: a rollout moves forward only, except through `failed` or a restart. It is graded without rolling only where what its agent left
is kept, and only once: after a failure or a restart it rolls. A score is never taken back; only `grouped` becomes `trained`. A running attempt that
tells nothing of what it is at passes the phases between in silence.

Worked example: placed at 0 s, rolling at 2 s, its host dies at 60 s: failed, queued (attempt 1), placed again at 60 s, rolling, grading,
scored at 200 s. Its group's slowest is scored at 500 s: all are grouped then, and trained when the batch is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum


class RolloutPhase(IntEnum):
    """The phases in order; `FAILED` is outside the order."""

    FAILED = -1
    QUEUED = 0
    PLACED = 1
    ROLLING = 2
    GRADING = 3
    SCORED = 4
    GROUPED = 5
    TRAINED = 6


RUNNING = frozenset({RolloutPhase.PLACED, RolloutPhase.ROLLING, RolloutPhase.GRADING})


@dataclass(frozen=True)
class RolloutSlot:
    """One place in a group: rollout `member` of group `group`, for the `attempt`-th time (0-based). `ended`: its agent was done in an
    earlier life of the run, and what it left is to be graded."""

    group: int
    member: int
    task_id: str
    attempt: int = 0
    ended: bool = False


@dataclass
class RolloutState:
    """Of the rollout in `slot`. `since_s`: when the phase began; `where`: the actor or host that it is at, as far as it is known."""

    slot: RolloutSlot
    phase: RolloutPhase = RolloutPhase.QUEUED
    since_s: float = 0.0
    where: str = ""

    @property
    def running(self) -> bool:
        return self.phase in RUNNING

    def move(self, phase: RolloutPhase, now_s: float = 0.0, where: str = "") -> None:
        """Forward along the line, or to `FAILED`. Raises ValueError on any other way."""
        if not self._lawful(phase):
            raise ValueError(f"{self.description()} can't become {phase.name.lower()}")
        self.phase, self.since_s, self.where = phase, now_s, where or self.where

    def _lawful(self, phase: RolloutPhase) -> bool:
        if phase is RolloutPhase.FAILED:
            return self.running
        if phase is RolloutPhase.TRAINED:
            return self.phase is RolloutPhase.GROUPED
        if self.phase is RolloutPhase.QUEUED:
            return phase is (RolloutPhase.GRADING if self.slot.ended else RolloutPhase.PLACED)
        return self.phase is not RolloutPhase.FAILED and phase > self.phase

    def begin(self, now_s: float = 0.0) -> None:
        """From queued to the first phase of its attempt."""
        self.move(RolloutPhase.GRADING if self.slot.ended else RolloutPhase.PLACED, now_s)

    def restart(self, now_s: float = 0.0, where: str = "") -> None:
        """The running attempt starts over in a fresh sandbox. Raises ValueError where none runs."""
        if not self.running:
            raise ValueError(f"{self.description()} does not run, so it can't start over")
        self.phase, self.since_s, self.where = RolloutPhase.PLACED, now_s, where

    def again(self, now_s: float = 0.0) -> None:
        """From failed to queued, as the next attempt. Raises ValueError where it has not failed."""
        if self.phase is not RolloutPhase.FAILED:
            raise ValueError(f"{self.description()} has not failed, so it isn't tried again")
        self.slot = replace(self.slot, attempt=self.slot.attempt + 1, ended=False)
        self.phase, self.since_s, self.where = RolloutPhase.QUEUED, now_s, ""

    def description(self) -> str:
        """For messages: who, and where in its life."""
        at = f" at {self.where}" if self.where else ""
        slot = self.slot
        return f"rollout {slot.group}.{slot.member} ({slot.task_id}, attempt {slot.attempt}), {self.phase.name.lower()}{at},"
