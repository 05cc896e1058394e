"""Later in training harder tasks come more often, by two plain signs that the Composer 2 report names: the turns and the thinking tokens of
rollouts (Composer 2 technical report).

The signs are measured before the run (`etude tasks difficulty DIR --runs DIR`). A task's hardness is the mean of its ranks by the two, from
-1 to 1; who was never tried is in the middle. From `start` of the way on a task's weight in the draw is exp(strength x way x hardness), so
the list stays one epoch without repetition, fixed before the first rollout (promise 6). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Signs = Mapping[str, tuple[float | None, float | None]]  # by task: turns, thinking tokens; None: unknown


def hardness(signs: Signs) -> dict[str, float]:
    """In [-1, 1] for every task; 0 for those without any sign."""
    columns = [_ranked({task: pair[place] for task, pair in signs.items()}) for place in (0, 1)]
    found: dict[str, float] = {}
    for task in signs:
        known = [column[task] for column in columns if task in column]
        found[task] = sum(known) / len(known) if known else 0.0
    return found


def _ranked(values: Mapping[str, float | None]) -> dict[str, float]:
    """The least at -1, the most at 1, equal ones between where they stand; one value alone says nothing."""
    known = {task: value for task, value in values.items() if value is not None}
    if len(set(known.values())) < 2:
        return {}
    _, group, counts = np.unique(np.array(list(known.values())), return_inverse=True, return_counts=True)
    middle = (np.cumsum(counts) - (counts + 1) / 2)[group] / (len(known) - 1)
    return {task: float(2 * place - 1) for task, place in zip(known, middle, strict=True)}


def ramp(way: float, start: float) -> float:
    """0 until `start`, 1 at the end."""
    return 0.0 if way <= start else min(1.0, (way - start) / (1 - start))


def order(
    levels: Sequence[str],
    pools: Mapping[str, Sequence[str]],
    hard: Mapping[str, float],
    strength: float,
    start: float,
    seed: int,
) -> list[str]:
    """A task for each place of `levels`, none twice: of the place's level, by the weights that hold there. Raises ValueError where a level
    has too few."""
    rng = np.random.default_rng(seed)
    left = {level: list(ids) for level, ids in pools.items()}
    weights = {level: np.array([hard.get(task, 0.0) for task in ids]) for level, ids in left.items()}
    drawn: list[str] = []
    for place, level in enumerate(levels):
        if not left[level]:
            raise ValueError(f"there are {len(pools[level])} tasks of level {level}, fewer than a single epoch takes")
        tilt = np.exp(strength * ramp(place / max(1, len(levels) - 1), start) * weights[level])
        chosen = int(rng.choice(len(tilt), p=tilt / tilt.sum()))
        drawn.append(left[level].pop(chosen))
        weights[level] = np.delete(weights[level], chosen)
    return drawn
