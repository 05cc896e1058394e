"""Groups: a fixed number of rollouts of one task, complete when every one of them is in.

A slot whose attempt met an infra fault is given back and tried again; the group never shrinks and no reward is made up for
it (promise 8). A task that fails so often that the bound is reached stops the run with its name and the last reason.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Result = TypeVar("Result")


class TaskUnreachable(Exception):
    """A task could not be attempted within the retry bound: the run stops instead of going on without it."""


@dataclass(frozen=True)
class Slot:
    """One place in a group: rollout `member` of group `group`, for the `attempt`-th time (0-based)."""

    group: int
    member: int
    task_id: str
    attempt: int = 0


@dataclass
class Group(Generic[Result]):
    """`version` is the policy version that served when the group was admitted, hence not above its oldest token's."""

    index: int
    task_id: str
    size: int
    version: int
    results: dict[int, Result] = field(default_factory=dict)
    waiting: deque[Slot] = field(default_factory=deque)
    running: set[Slot] = field(default_factory=set)
    faults: int = 0

    def __post_init__(self) -> None:
        if not self.results:
            self.waiting.extend(Slot(self.index, member, self.task_id) for member in range(self.size))

    @property
    def complete(self) -> bool:
        return len(self.results) == self.size

    @property
    def members(self) -> list[Result]:
        """The results in the order of the slots, so that a batch does not depend on who finished first."""
        return [self.results[member] for member in sorted(self.results)]

    def take(self) -> Slot:
        """The next slot to run."""
        slot = self.waiting.popleft()
        self.running.add(slot)
        return slot

    def put(self, slot: Slot, result: Result) -> None:
        """The rollout of this slot is in."""
        self.running.remove(slot)
        self.results[slot.member] = result

    def give_back(self, slot: Slot, reason: str, max_faults: int) -> None:
        """The attempt met an infra fault; raises TaskUnreachable when the group has had more than `max_faults`."""
        self.running.remove(slot)
        self.faults += 1
        if self.faults > max_faults:
            raise TaskUnreachable(
                f"task {slot.task_id} (group {self.index}) met {self.faults} infra faults, the last: {reason}. "
                "The single-epoch list can't be trained whole without it; mend the cause and run again, it goes on here"
            )
        self.waiting.appendleft(Slot(slot.group, slot.member, slot.task_id, slot.attempt + 1))
