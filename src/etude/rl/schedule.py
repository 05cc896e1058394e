"""The single-epoch task list, fixed before the first rollout (promise 6).

Group i works at task i of the list, so the set of trained tasks depends on the seed alone and not on which rollouts were
fast or where the run was killed. A task never appears twice.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from etude.rl.curriculum import hardness, order
from etude.rl.settings import RlSettings
from etude.tasks.task import MeasuredSource, TaskSource


@dataclass(frozen=True)
class Schedule:
    """`task_ids[i]` is the task of group i; there are steps * groups_per_step of them, all different, and some to spare where groups may be
    set aside. Groups behind them work at tasks of the `reserve`, each in place of one that can't be attempted."""

    task_ids: tuple[str, ...]
    reserve: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.task_ids)

    def task(self, group: int) -> str:
        """Of a group, also of one from the reserve."""
        return self.task_ids[group] if group < len(self) else self.reserve[group - len(self)]

    @property
    def digest(self) -> str:
        """Names the list without its reserve; a resumed run refuses a ledger written for another one."""
        return hashlib.sha256("\n".join(self.task_ids).encode()).hexdigest()[:16]


def task_list(settings: RlSettings, source: TaskSource) -> Schedule:
    """The list of a run: the source's own mix of levels, or the shares that the settings give."""
    count = settings.steps * settings.groups_per_step
    if settings.set_aside != "none":
        count += round(settings.spare * count)
    shares = {level: share for level, share in settings.levels.items() if share > 0}
    if not settings.levels:
        pools = {"": source.ids("train")}
    else:
        pools = {level: source.ids("train", level=level) for level in shares}
    schedule = draw(pools, shares, count, settings.seed)
    if settings.curriculum.strength != 0:
        schedule = _harder_later(schedule, settings, source, pools)
    return replace(schedule, reserve=_reserve(schedule, pools, settings))


def _reserve(schedule: Schedule, pools: Mapping[str, Sequence[str]], settings: RlSettings) -> tuple[str, ...]:
    """As many tasks as may be unreachable, of those that the list has not; fewer where there are no more. The list is drawn without them."""
    taken, rng, found = set(schedule.task_ids), random.Random(f"reserve {settings.seed}"), list[str]()
    levels = sorted(pools)
    ends = list(accumulate(len(pools[level]) for level in levels))
    # Places, not ids: a source may have millions of tasks and make an id only when it is asked for it.
    for place in rng.sample(range(ends[-1]), min(ends[-1], len(taken) + settings.max_unreachable)):
        if len(found) == settings.max_unreachable:
            break
        number = bisect_right(ends, place)
        task = pools[levels[number]][place - (ends[number - 1] if number else 0)]
        if task not in taken:
            found.append(task)
    return tuple(found)


def _harder_later(
    schedule: Schedule, settings: RlSettings, source: TaskSource, pools: Mapping[str, Sequence[str]]
) -> Schedule:
    """The same levels at the same places, other tasks of them."""
    hard = hardness(source.signs()) if isinstance(source, MeasuredSource) else {}
    if not any(hard.values()):
        raise ValueError(
            f"rl.curriculum.strength = {settings.curriculum.strength:g} goes by the turns and thinking tokens of rollouts, and no two tasks of "
            f"{source.name} are known to differ in them: measure a folder's with `etude tasks difficulty DIR --runs DIR`, or leave it at 0"
        )
    level_of = {task: level for level, ids in pools.items() for task in ids}
    levels = [level_of[task] for task in schedule.task_ids]
    how = settings.curriculum
    return Schedule(tuple(order(levels, pools, hard, how.strength, how.start, settings.seed)))


def draw(pools: Mapping[str, Sequence[str]], shares: Mapping[str, float], count: int, seed: int) -> Schedule:
    """Draw `count` tasks without replacement: from each level its share (largest remainders), shuffled together.

    `pools` holds the task ids of each level, `shares` the relative weight of each level (no entry means 1, 0 leaves out).
    """
    unknown = sorted(set(shares) - set(pools))
    if unknown:
        raise ValueError(f"no tasks of level {', '.join(unknown)}; there are: {', '.join(sorted(pools))}")
    rng = random.Random(seed)
    drawn: list[str] = []
    for level, number in _apportion({level: shares.get(level, 1.0) for level in sorted(pools)}, count).items():
        if len(pools[level]) < number:
            raise ValueError(
                f"{number} tasks of level {level} are needed for a single epoch, but there are {len(pools[level])}: "
                "fewer steps, smaller batches, another share or more tasks"
            )
        drawn += [pools[level][i] for i in rng.sample(range(len(pools[level])), number)]
    if len(set(drawn)) != len(drawn):
        raise ValueError("the same task id appears in two levels, so it would be trained twice")
    rng.shuffle(drawn)
    return Schedule(tuple(drawn))


def _apportion(shares: dict[str, float], count: int) -> dict[str, int]:
    """Split `count` in proportion to the shares by largest remainders; the sum is exact."""
    total = sum(shares.values())
    if total <= 0:
        raise ValueError(f"the shares of the levels sum to {total}; at least one has to be positive")
    exact = {level: count * share / total for level, share in shares.items()}
    numbers = {level: int(value) for level, value in exact.items()}
    by_remainder = sorted(exact, key=lambda level: (numbers[level] - exact[level], level))
    for level in by_remainder[: count - sum(numbers.values())]:
        numbers[level] += 1
    return numbers
