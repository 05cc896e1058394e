"""Groups: a fixed number of rollouts of one task, complete when every one of them is scored.

A rollout that met an infra fault is queued again; the group never shrinks and no reward is made up for it (promise 8). A task
that fails so often that the bound is reached can't be attempted: the reconciler sets it aside, with its name and the last reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Generic, TypeVar

from etude.rl.rollout_state import RolloutPhase, RolloutSlot, RolloutState

Result = TypeVar("Result")


class TaskUnreachable(Exception):
    """A task could not be attempted within the retry bound."""


@dataclass
class UnfinishedGroup(Generic[Result]):
    """What is left of a group after a kill, admitted at `version`: the results that there are, by member, and of members whose agent was
    done but who had no verdict yet, which attempt that was."""

    version: int
    results: dict[int, Result] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)


@dataclass
class RolloutGroup(Generic[Result]):
    """`version` is the policy version that served when the group was admitted, hence not above its oldest token's.
    `ended`: as in `UnfinishedGroup`."""

    index: int
    task_id: str
    size: int
    version: int
    results: dict[int, Result] = field(default_factory=dict)
    lives: list[RolloutState] = field(default_factory=list)
    faults: int = 0
    queued: int = 0  # rollouts that wait for a place
    ended: InitVar[Mapping[int, int] | None] = None

    def __post_init__(self, ended: Mapping[int, int] | None) -> None:
        left = ended or {}
        had = RolloutPhase.GROUPED if self.complete else RolloutPhase.SCORED
        self.queued = self.size - len(self.results)
        self.lives = [
            RolloutState(
                RolloutSlot(
                    self.index, member, self.task_id, left.get(member, 0), member in left and member not in self.results
                ),
                had if member in self.results else RolloutPhase.QUEUED,
            )
            for member in range(self.size)
        ]

    @property
    def complete(self) -> bool:
        return len(self.results) == self.size

    @property
    def members(self) -> list[Result]:
        """The results in the order of the slots, so that a batch does not depend on who finished first."""
        return [self.results[member] for member in sorted(self.results)]

    def place(self, now_s: float = 0.0) -> RolloutSlot:
        """The next slot to run; who needs only a verdict comes first, then who failed before."""
        queued = [life for life in self.lives if life.phase is RolloutPhase.QUEUED]
        life = max(queued, key=lambda life: (life.slot.ended, life.slot.attempt, -life.slot.member))
        life.begin(now_s)
        self.queued -= 1
        return life.slot

    def put(self, slot: RolloutSlot, result: Result, now_s: float = 0.0) -> None:
        """The rollout of this slot is scored; with the last one all are grouped."""
        self._life(slot).move(RolloutPhase.SCORED, now_s)
        self.results[slot.member] = result
        if self.complete:
            for life in self.lives:
                life.move(RolloutPhase.GROUPED, now_s)

    def fail(self, slot: RolloutSlot, reason: str, max_faults: int, now_s: float = 0.0) -> None:
        """The attempt met an infra fault; raises TaskUnreachable when the group has had more than `max_faults`."""
        life = self._life(slot)
        life.move(RolloutPhase.FAILED, now_s)
        self.faults += 1
        if self.faults > max_faults:
            raise TaskUnreachable(
                f"task {slot.task_id} (group {self.index}) met {self.faults} infra faults, the last: {reason}. "
                "Mend the cause, or leave the task out, and run again: it goes on here"
            )
        life.again(now_s)
        self.queued += 1

    def note(self, slot: RolloutSlot, phase: RolloutPhase, now_s: float, where: str = "") -> None:
        """What a running attempt is at. One that restarts in a fresh sandbox is placed again. News of an earlier attempt is ignored."""
        life = self.lives[slot.member]
        if life.slot != slot or not life.running:
            return
        if phase > life.phase:
            life.move(phase, now_s, where)
        elif phase is RolloutPhase.PLACED and life.phase is not RolloutPhase.PLACED:
            life.restart(now_s, where)

    def _life(self, slot: RolloutSlot) -> RolloutState:
        life = self.lives[slot.member]
        if life.slot != slot or not life.running:
            raise ValueError(
                f"attempt {slot.attempt} of rollout {slot.group}.{slot.member} does not run: {life.description()}"
            )
        return life
