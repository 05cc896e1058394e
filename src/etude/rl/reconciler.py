"""The reconciler: which rollouts run now, which groups are trained next. Pure: no clock (callers bring the time), no I/O, no Ray.

Life of a group (that of a rollout: `rollout_state.py`):
    planned -> admitted    by `start`, if the staleness window says that it can still be trained in time
    admitted -> complete   by `finish` of its last rollout; infra faults (`fail`) queue the slot again
    admitted -> unreachable    by `fail`, after more faults than a group may have; a task of the reserve takes its place. Too many end the run
    complete -> trained    by `batch`, exactly once, at a step within its deadline
    admitted -> set aside  by `finish`, where what it came to is not to be trained (`aside`); another task takes its place
Invariants: at most `slots` rollouts run; every admitted group is within its deadline; a group is handed out once, whole.
The controller asks `start` whenever something changed, runs what it gets, and asks `batch` whenever the trainer is free.
Admission follows the schedule's order, so the admitted groups are a prefix of it (after a resume: minus the trained).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from etude.rl.groups import RolloutGroup, TaskUnreachable, UnfinishedGroup
from etude.rl.rollout_state import RolloutPhase, RolloutSlot, RolloutState
from etude.rl.schedule import Schedule
from etude.rl.window import StalenessWindow

Result = TypeVar("Result")


@dataclass(frozen=True)
class RolloutLimits:
    """Bounds of what runs and of what may fail."""

    slots: int  # rollouts that run at the same time
    group_size: int  # rollouts of a task
    max_faults: int  # infrastructure errors that a group may have
    max_unreachable: int = 0  # groups that may be given up for too many infrastructure errors, in all lives of the run


class Reconciler(Generic[Result]):
    """Keeps up to `slots` rollouts busy and hands out batches; `version` is the one that the engine serves (acknowledged)."""

    def __init__(
        self,
        schedule: Schedule,
        window: StalenessWindow,
        *,
        limits: RolloutLimits,
        version: int = 0,
        steps: int | None = None,
        aside: Callable[[list[Result]], bool] = lambda results: False,
    ) -> None:
        """`steps`: to be trained, where the schedule has tasks to spare for groups that are set aside."""
        self.schedule = schedule
        self.window = window
        self.limits = limits
        self.slots = limits.slots
        self.group_size = limits.group_size
        self.version = version
        self.steps = len(schedule) // window.groups_per_step if steps is None else steps
        self.aside = aside
        self.groups: dict[int, RolloutGroup[Result]] = {}  # admitted and untrained
        self.admitted: list[RolloutGroup[Result]] = []  # since the last `take_admitted`, for the ledger
        self.unreachable = 0  # groups given up, also in earlier lives
        self._planned: deque[int] = deque(range(len(schedule)))
        self._reserve: deque[int] = deque(range(len(schedule), len(schedule) + len(schedule.reserve)))
        self._running = 0
        self._complete: set[int] = set()  # of the admitted

    def restore(self, done: Iterable[int], begun: Mapping[int, UnfinishedGroup[Result]], unreachable: int = 0) -> None:
        """After a kill: `done` groups are trained or set aside, `unreachable` of them because their task could not be attempted; of `begun` ones
        all or some results are there, or what agents left for the verdict. Unfinished ones begin again where the window has no room for them."""
        found = [
            RolloutGroup(
                index, self.schedule.task(index), self.group_size, one.version, dict(one.results), ended=one.ended
            )
            for index, one in sorted(begun.items())
        ]
        for group in sorted(found, key=lambda group: not group.complete):
            if group.complete or self.window.may_admit(group.version):
                self.window.admit(group.index, group.version)
                self.groups[group.index] = group
        self._complete = {index for index, group in self.groups.items() if group.complete}
        over = {*done, *self.groups}
        self._planned = deque(index for index in self._planned if index not in over)
        self._reserve = deque(index for index in self._reserve if index not in over)
        self.unreachable = unreachable

    @property
    def running(self) -> int:
        return self._running

    @property
    def done(self) -> bool:
        """Every step has been handed out for training, or there are too few tasks left for one more."""
        return self.window.next_step >= self.steps or (
            not self._planned and not self._replaceable and len(self.groups) < self.window.groups_per_step
        )

    def start(self, now_s: float = 0.0) -> list[RolloutSlot]:
        """Slots to launch now: free places go to the oldest admitted group first, then to newly admitted groups."""
        launched: list[RolloutSlot] = []
        while self._running < self.slots:
            group = next((g for g in self.groups.values() if g.queued), None) or self._admit()
            if group is None:
                break
            launched.append(group.place(now_s))
            self._running += 1
        return launched

    def note(self, slot: RolloutSlot, phase: RolloutPhase, now_s: float, where: str = "") -> None:
        """What a running attempt is at; late news of one that is over are ignored."""
        if slot.group in self.groups:
            self.groups[slot.group].note(slot, phase, now_s, where)

    def lives(self) -> list[RolloutState]:
        """Of all admitted and untrained groups, the oldest group first."""
        return [life for index in sorted(self.groups) for life in self.groups[index].lives]

    def finish(self, slot: RolloutSlot, result: Result, now_s: float = 0.0) -> RolloutGroup[Result] | None:
        """A rollout came in; returns its group if that is complete now: to be trained if it is still among `groups`, else set aside."""
        group = self.groups[slot.group]
        group.put(slot, result, now_s)
        self._running -= 1
        if not group.complete:
            return None
        if self.aside(group.members):
            self.window.leave(slot.group)
            del self.groups[slot.group]
        else:
            self._complete.add(slot.group)
        return group

    def fail(self, slot: RolloutSlot, reason: str, now_s: float = 0.0) -> RolloutGroup[Result] | None:
        """An infra fault: the slot is tried again. A group beyond the bound is returned: it is given up, and none of its rollouts counts as running.
        Raises TaskUnreachable where too many were."""
        self._running -= 1
        group = self.groups[slot.group]
        try:
            group.fail(slot, reason, self.limits.max_faults, now_s)
        except TaskUnreachable as error:
            if self.unreachable >= self.limits.max_unreachable:
                more = (
                    f" {self.unreachable} tasks before it were set aside for the same (rl.max_unreachable)."
                    if self.unreachable
                    else ""
                )
                raise TaskUnreachable(f"{error}.{more}") from None
            self.unreachable += 1
            self._running -= sum(life.running for life in group.lives)
            self.window.leave(slot.group)
            del self.groups[slot.group]
            return group
        return None

    def batch(self) -> list[RolloutGroup[Result]] | None:
        """Groups to train at step `window.next_step`, or None as long as there is nothing to train or a straggler is due."""
        picked = self.window.pick(self._complete)
        if picked is None:
            return None
        self.window.train(picked)
        self._complete -= set(picked)
        batch = [self.groups.pop(index) for index in picked]
        for life in (life for group in batch for life in group.lives):
            life.move(RolloutPhase.TRAINED)
        return batch

    def awaited_group(self) -> tuple[int, bool] | None:
        """The group that the next batch waits for, and whether that is because its deadline is here."""
        return self.window.awaited_group(self._complete)

    def take_admitted(self) -> list[RolloutGroup[Result]]:
        """Groups admitted since the last call."""
        admitted, self.admitted = self.admitted, []
        return admitted

    @property
    def _replaceable(self) -> bool:
        """Whether the reserve has a task in place of one that is unreachable."""
        used = len(self.schedule.reserve) - len(self._reserve)
        return bool(self._reserve) and used < self.unreachable

    def _admit(self) -> RolloutGroup[Result] | None:
        wanted = self.window.groups_per_step * (self.steps - self.window.next_step)
        waiting = self._planned or (self._reserve if self._replaceable else None)
        if not waiting or len(self.window) >= wanted or not self.window.may_admit(self.version):
            return None
        index = waiting.popleft()
        self.window.admit(index, self.version)
        group: RolloutGroup[Result] = RolloutGroup(index, self.schedule.task(index), self.group_size, self.version)
        self.groups[index] = group
        self.admitted.append(group)
        return group
