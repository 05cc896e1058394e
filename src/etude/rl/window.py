"""The staleness window: admission that keeps training data fresh without throwing work away (promise 5).

Words: the trainer's version is the number of updates made; step s is trained at version s. A group admitted at version v
may hold tokens of version v at the oldest, so it has to be trained at a step <= v + max_staleness: its *deadline*.

Peers bound staleness by dropping late groups (which biases to short rollouts) or by a count of outstanding work (which lets
a straggler overshoot). Here the deadlines of all untrained groups are kept feasible as in earliest-deadline-first
scheduling: for every step j >= next_step

    groups untrained with deadline <= j   <=   groups_per_step * (j - next_step + 1)

A group is admitted only if this stays true with it, and a batch is trained only if this stays true without it; otherwise
the trainer waits for the straggler. By induction no deadline is ever missed, whatever the latencies.

Fairness: a batch is taken from the `reach` oldest untrained groups only, so that quick groups don't pass slow ones by more than
that many places. `reach` = groups_per_step is first come, first trained; without one whatever is finished may be trained, and only
the deadlines hold the slow ones' place. Neither can deadlock: once the oldest groups are in, they are a batch.

Worked example, 2 groups a step, max_staleness 1, next_step 0, version 0: the deadline of new groups is 1, so 4 fit.
Groups b, c, d finish, a is slow. (b, c) may be trained at step 0: a and d are left with deadline 1 and step 1 holds both.
Version 1 arrives; 2 new groups e, f (deadline 2) fit. Now e, f, d are finished, a is not: the next step is 1 and a has
to be in it, so the trainer waits for a, then trains (a, d).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable


class StalenessWindow:
    """Decides which groups may start and which finished groups may be trained; knows nothing of what a group is."""

    def __init__(
        self, groups_per_step: int, max_staleness: int, next_step: int = 0, *, reach: int | None = None
    ) -> None:
        if groups_per_step < 1 or max_staleness < 0:
            raise ValueError(
                f"a window needs groups_per_step >= 1 and max_staleness >= 0, got {groups_per_step} and {max_staleness}"
            )
        if reach is not None and reach < groups_per_step:
            raise ValueError(f"a reach of {reach} groups holds no batch of {groups_per_step}; give at least as many")
        self.groups_per_step = groups_per_step
        self.max_staleness = max_staleness
        self.reach = reach
        self.next_step = next_step
        self._deadlines: dict[int, int] = {}  # untrained group -> last step at which it may be trained

    def __len__(self) -> int:
        return len(self._deadlines)

    def may_admit(self, version: int) -> bool:
        """Whether one more group may start now, with `version` serving."""
        return self._feasible([*self._deadlines.values(), version + self.max_staleness], self.next_step)

    def admit(self, group: int, version: int) -> None:
        """Take a group in. Also used for groups read back after a kill, with the version that they were admitted at."""
        if group in self._deadlines:
            raise ValueError(f"group {group} is in the window already")
        if not self.may_admit(version):
            raise ValueError(
                f"group {group} at version {version} can't be trained in time (next step {self.next_step})"
            )
        self._deadlines[group] = version + self.max_staleness

    def pick(self, finished: Iterable[int]) -> list[int] | None:
        """The next batch out of the finished groups, most urgent first; None: too few, or a straggler is due first."""
        near = self._near()
        within = [group for group in finished if near is None or group in near]
        batch = sorted(within, key=lambda group: (self._deadlines[group], group))[: self.groups_per_step]
        if len(batch) < self.groups_per_step:
            return None
        taken = set(batch)
        rest = [deadline for group, deadline in self._deadlines.items() if group not in taken]
        return batch if self._feasible(rest, self.next_step + 1) else None

    def awaited_group(self, finished: Iterable[int]) -> tuple[int, bool] | None:
        """The unfinished group that the next batch waits for: the most urgent one, and whether it is due at the next step."""
        done = set(finished)
        late = [(deadline, group) for group, deadline in self._deadlines.items() if group not in done]
        if not late:
            return None
        deadline, group = min(late)
        return group, deadline <= self.next_step

    def train(self, batch: Iterable[int]) -> None:
        """The batch is trained at `next_step` now; raises if a deadline is missed (that would break the promise)."""
        for group in batch:
            deadline = self._deadlines.pop(group)
            if deadline < self.next_step:
                raise ValueError(
                    f"group {group} had to be trained by step {deadline}, but step {self.next_step} is due"
                )
        self.next_step += 1

    def leave(self, group: int) -> None:
        """The group will not be trained."""
        del self._deadlines[group]

    def _near(self) -> set[int] | None:
        """The groups that a batch may be taken from; None: any. Numbers of groups grow in the order of admission."""
        if self.reach is None or self.reach >= len(self._deadlines):
            return None
        return set(heapq.nsmallest(self.reach, self._deadlines))

    def _feasible(self, deadlines: list[int], next_step: int) -> bool:
        due = 0
        for deadline, count in sorted(Counter(deadlines).items()):
            due += count
            if due > self.groups_per_step * (deadline - next_step + 1):
                return False
        return True
