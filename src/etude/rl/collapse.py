"""A policy that solved tasks and solves none any more: the run stops and says so, for no later step would mend it.

Too large a step does that to a policy: its turns become malformed, no rollout solves its task, groups that all failed are set aside or train
nothing but brevity. The run would go on until its tasks are used up. What is certain is a question of chance, as tasks differ in difficulty: of
the groups before, s had a rollout that solved the task and u had none. With a uniform prior on the share of such groups, that the next n have
none has the probability B(s + 1, u + 1 + n) / B(s + 1, u + 1), the predictive distribution of a Bernoulli variable (B is the beta function).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from etude.core.trace.segment import Rollout
from etude.rl.groups import RolloutGroup
from etude.rl.settings import RlSettings
from etude.rl.steps import StepRecord

LEAST_BATCHES = 4  # groups of as many steps without a solved task, whatever the chance of that is
BY_CHANCE = 1e-6


class PolicyCollapsed(RuntimeError):
    """The policy solves nothing any more; the message says since which version, and what to change."""


@dataclass
class _Groups:
    """Counts of finished groups."""

    solved: int = 0  # at least one rollout solved the task
    unsolved: int = 0
    turns: float = 0.0
    malformed: float = 0.0

    def add(self, other: _Groups) -> None:
        self.solved += other.solved
        self.unsolved += other.unsolved
        self.turns += other.turns
        self.malformed += other.malformed

    @property
    def malformed_share(self) -> str:
        return f"{self.malformed / self.turns:.0%}" if self.turns else "none"


@dataclass
class CollapseWatch:
    """Looks at finished groups, also at those set aside. Raises PolicyCollapsed."""

    settings: RlSettings
    _before: _Groups = field(default_factory=_Groups)
    _unsolved: _Groups = field(default_factory=_Groups)  # in a row, up to the last one
    _oldest: int = -1  # version that the first of them was admitted at

    def remember(self, records: Iterable[StepRecord]) -> None:
        """Steps of earlier lives of the run. Of the groups that they set aside it is not known whether a rollout solved its task, so none is
        taken to have."""
        size = self.settings.group_size
        for record in records:
            outcomes = [parts["outcome"] for parts in record.components]
            groups = [outcomes[first : first + size] for first in range(0, len(outcomes), size)]
            solved = sum(any(value > 0 for value in group) for group in groups)
            turns, malformed = (record.values.get(name, 0.0) * len(outcomes) for name in ("turns", "malformed_turns"))
            unsolved = len(groups) - solved + int(record.values.get("set_aside", 0.0))
            self._before.add(_Groups(solved, unsolved, turns, malformed))

    def look(self, group: RolloutGroup[Rollout]) -> None:
        """A finished group."""
        found = _count(group)
        if found.solved:
            self._before.add(self._unsolved)
            self._before.add(found)
            self._unsolved = _Groups()
            return
        if not self._unsolved.unsolved:
            self._oldest = group.version
        self._unsolved.add(found)
        row, before = self._unsolved.unsolved, self._before
        if before.solved and row >= LEAST_BATCHES * self.settings.groups_per_step and _chance(before, row) < BY_CHANCE:
            raise PolicyCollapsed(self._text())

    def _text(self) -> str:
        row, before = self._unsolved, self._before
        lr, rollouts = self.settings.update.lr, row.unsolved * self.settings.group_size
        return (
            f"the policy has collapsed: none of the {rollouts} rollouts of the last {row.unsolved} groups, admitted from version {self._oldest} "
            f"on, solved its task; of the {before.solved + before.unsolved} groups before, {before.solved} had one that did. Malformed turns: "
            f"{row.malformed_share}, before {before.malformed_share}. Lower rl.update.lr, which is {lr:g}, or set rl.kl_beta above 0: "
            "the same command then starts the rl stage again, and keeps what this one made"
        )


def _count(group: RolloutGroup[Rollout]) -> _Groups:
    solved = any(rollout.rewards["outcome"] > 0 for rollout in group.members)
    turns, malformed = (
        sum(rollout.counters.get(name, 0.0) for rollout in group.members) for name in ("turns", "malformed_turns")
    )
    return _Groups(int(solved), int(not solved), turns, malformed)


def _chance(before: _Groups, unsolved: int) -> float:
    """That as many groups have no rollout that solves its task, after what was seen before."""
    a, b = before.solved + 1, before.unsolved + 1
    return math.exp(_log_beta(a, b + unsolved) - _log_beta(a, b))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
