"""The life of one rollout as a state machine. Pure: whoever calls brings the time.

    queued  -> placed     a slot is free and the staleness window let its group in; the attempt asks for a sandbox
    placed  -> rolling    the sandbox is there, the agent works
    rolling -> grading    the agent is done, its files go to a fresh sandbox
    grading -> scored     there is a verdict; what the policy did wrong ends here too, with what its files earn (promise 8)
    scored  -> grouped    every rollout of the group is scored
    grouped -> trained    the group is in a batch, which happens once
    placed, rolling, grading -> failed    a fault of ours: nothing of the attempt counts
    failed  -> queued     the slot is tried again, as its next attempt

Invariants: a life moves forward only, but through `failed`; a score is never taken back; only `grouped` becomes `trained`. An attempt
that tells nothing of what it is at passes the phases between in silence.

Worked example: placed at 0 s, rolling at 2 s, its host dies at 60 s: failed, queued (attempt 1), placed again at 60 s, rolling, grading,
scored at 200 s. Its group's slowest is scored at 500 s: all are grouped then, and trained when the batch is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Phase(IntEnum):
    """Along the line, in order; `FAILED` stands beside it."""

    FAILED = -1
    QUEUED = 0
    PLACED = 1
    ROLLING = 2
    GRADING = 3
    SCORED = 4
    GROUPED = 5
    TRAINED = 6


RUNNING = frozenset({Phase.PLACED, Phase.ROLLING, Phase.GRADING})


@dataclass(frozen=True)
class Slot:
    """One place in a group: rollout `member` of group `group`, for the `attempt`-th time (0-based)."""

    group: int
    member: int
    task_id: str
    attempt: int = 0


@dataclass
class Life:
    """Of the rollout in `slot`. `since_s`: when the phase began; `where`: the actor or host that it is at, as far as it is known."""

    slot: Slot
    phase: Phase = Phase.QUEUED
    since_s: float = 0.0
    where: str = ""

    @property
    def running(self) -> bool:
        return self.phase in RUNNING

    def move(self, phase: Phase, now_s: float = 0.0, where: str = "") -> None:
        """Forward along the line, or to `FAILED`. Raises ValueError on any other way."""
        lawful = self.running if phase is Phase.FAILED else self.phase is not Phase.FAILED and phase > self.phase
        if phase is Phase.TRAINED:
            lawful = self.phase is Phase.GROUPED
        if not lawful:
            raise ValueError(f"{self.told()} can't become {phase.name.lower()}")
        self.phase, self.since_s, self.where = phase, now_s, where or self.where

    def again(self, now_s: float = 0.0) -> None:
        """From failed to queued, as the next attempt. Raises ValueError where it has not failed."""
        if self.phase is not Phase.FAILED:
            raise ValueError(f"{self.told()} has not failed, so it isn't tried again")
        before = self.slot
        self.slot = Slot(before.group, before.member, before.task_id, before.attempt + 1)
        self.phase, self.since_s, self.where = Phase.QUEUED, now_s, ""

    def told(self) -> str:
        """For messages: who, and where in its life."""
        at = f" at {self.where}" if self.where else ""
        slot = self.slot
        return f"rollout {slot.group}.{slot.member} ({slot.task_id}, attempt {slot.attempt}), {self.phase.name.lower()}{at},"
