"""Which tasks a bench asks: the same for every policy, the levels in the proportions of training, fixed by a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping

from etude.tasks.task import Split, Task, TaskSource

FEWEST = 1  # tasks of a level: every level has its row in the report


def shares(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """`count` tasks split by weight (largest remainders first), at least FEWEST each. Raises ValueError if they don't fit."""
    levels = [level for level, weight in weights.items() if weight > 0]
    if count < FEWEST * len(levels):
        raise ValueError(
            f"{count} tasks are too few for {len(levels)} levels: set bench.tasks to {FEWEST * len(levels)}"
        )
    spare = count - FEWEST * len(levels)
    exact = {level: spare * weights[level] / sum(weights[other] for other in levels) for level in levels}
    given = {level: FEWEST + int(exact[level]) for level in levels}
    by_remainder = sorted(levels, key=lambda level: (int(exact[level]) - exact[level], level))
    for level in by_remainder[: count - sum(given.values())]:
        given[level] += 1
    return given


def choose(
    source: TaskSource, weights: Mapping[str, float], count: int, seed: int, split: Split = "heldout"
) -> list[Task]:
    """`count` tasks of a split without repetition."""
    rng = random.Random(seed)
    chosen: list[Task] = []
    for level, share in shares(weights, count).items():
        ids = source.ids(split, level=level)
        if len(ids) < share:
            raise ValueError(
                f"level {level!r} has {len(ids)} {split} tasks, the bench asks for {share}: lower bench.tasks"
            )
        chosen += [source.task(task_id) for task_id in rng.sample(ids, share)]
    return chosen
