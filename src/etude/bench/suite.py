"""Which tasks a bench asks: the same for every policy, spread evenly over the levels, fixed by a seed."""

from __future__ import annotations

import random

from etude.tasks.task import Task, TaskSource


def choose(source: TaskSource, levels: list[str], count: int, seed: int) -> list[Task]:
    """`count` held-out tasks, as equal a number from each level as divides, without repetition."""
    rng = random.Random(seed)
    chosen: list[Task] = []
    for index, level in enumerate(levels):
        share = count // len(levels) + (index < count % len(levels))
        ids = list(source.ids("heldout", level=level))
        if len(ids) < share:
            raise ValueError(
                f"level {level!r} has {len(ids)} held-out tasks, the bench asks for {share}: lower bench.tasks"
            )
        chosen += [source.task(task_id) for task_id in rng.sample(ids, share)]
    return chosen
