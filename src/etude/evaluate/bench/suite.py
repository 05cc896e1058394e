"""Which tasks a bench asks: the same for every policy, fixed by a seed.

The levels have the proportions of training, but none has fewer tasks than its floor: a level of three tasks says nothing about
itself. `summary` weighs the averages back to the mix.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from etude.tasks.task import Split, Task, TaskSource


def shares(weights: Mapping[str, float], count: int, minimums: Mapping[str, int] | None = None) -> dict[str, int]:
    """`count` tasks split by weight (largest remainders first), each level at least its floor (1 where none is given).

    Raises ValueError if the floors alone are more than `count`.
    """
    fewest = {level: max(1, (minimums or {}).get(level, 1)) for level, weight in weights.items() if weight > 0}
    if count < sum(fewest.values()):
        raise ValueError(
            f"{count} tasks are too few for {len(fewest)} levels: ask for {sum(fewest.values())} or more (bench.tasks, in "
            "`etude bench run` --tasks), or "
            "lower bench.tasks_per_level_min and bench.tasks_discovery_min"
        )
    raised: set[str] = set()  # levels that their floor lifts above their share
    while True:
        spare = count - sum(fewest[level] for level in raised)
        whole = sum(weights[level] for level in fewest if level not in raised)
        exact = {level: spare * weights[level] / whole for level in fewest if level not in raised}
        below = {level for level, share in exact.items() if share < fewest[level]}
        if not below:
            break
        raised |= below
    given = {level: int(exact[level]) if level in exact else fewest[level] for level in fewest}
    by_remainder = sorted(exact, key=lambda level: (int(exact[level]) - exact[level], level))
    for level in by_remainder[: count - sum(given.values())]:
        given[level] += 1
    return given


def choose_tasks(
    source: TaskSource,
    weights: Mapping[str, float],
    count: int,
    seed: int,
    split: Split = "heldout",
    minimums: Mapping[str, int] | None = None,
) -> list[Task]:
    """`count` tasks of a split without repetition."""
    rng = random.Random(seed)
    chosen: list[Task] = []
    for level, share in shares(weights, count, minimums).items():
        ids = source.ids(split, level=level)
        if len(ids) < share:
            raise ValueError(
                f"level {level!r} has {len(ids)} {split} tasks, the bench asks for {share}: lower bench.tasks"
            )
        chosen += [source.task(task_id) for task_id in rng.sample(ids, share)]
    return chosen
