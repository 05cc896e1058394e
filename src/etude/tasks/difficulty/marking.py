"""Writes measured difficulty into a folder's tasks, and says how well the prior foretold what rollouts found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from etude.tasks.difficulty.score import DifficultySample, measure_difficulty
from etude.tasks.stats import spread
from etude.tasks.store.folder import TaskFolder

KEY = "difficulty"
FEWEST = 3  # tasks with rollouts, below which a correlation says nothing


def mark(
    folder: TaskFolder,
    samples: Iterable[DifficultySample],
    progress: Callable[[int, int], None] = lambda done, whole: None,
) -> dict[str, Any]:
    """The account. Rollouts of tasks that are not here are counted and left aside; a task whose difficulty is as before is not written."""
    of: dict[str, list[DifficultySample]] = defaultdict(list)
    strange = 0
    for one in samples:
        if one.task in folder.rows:
            of[one.task].append(one)
        else:
            strange += 1
    found: dict[str, dict[str, Any]] = {}
    written = 0
    for number, task_id in enumerate(list(folder.rows), 1):
        task = folder.task(task_id)
        found[task_id] = document = measure_difficulty(task, of[task_id])
        if task.metadata.get(KEY) != document:
            folder.add(replace(task, metadata={**task.metadata, KEY: document}))
            written += 1
        progress(number, len(folder.rows))
    return {
        "tasks": len(found),
        "written": written,
        "rollouts": sum(map(len, of.values())),
        "rollouts_of_other_tasks": strange,
        "difficulty": spread([one["score"] for one in found.values()]),
        "prior": spread([one["prior"] for one in found.values()]),
        "foretold": foretold(found.values()),
        "by_generator": _by_generator(folder),
    }


def foretold(found: Iterable[dict[str, Any]]) -> float | None:
    """Spearman's correlation of the prior with the share of attempts that failed; None below `FEWEST` tasks, or where all are alike."""
    pairs = [(one["prior"], 1 - one["rollouts"]["mean"]) for one in found if "rollouts" in one]
    if len(pairs) < FEWEST:
        return None
    ranks = [_ranks(np.array(column)) for column in zip(*pairs, strict=True)]
    if any(column.std() == 0 for column in ranks):
        return None
    return round(float(np.corrcoef(ranks[0], ranks[1])[0, 1]), 3)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def _by_generator(folder: TaskFolder) -> dict[str, float]:
    """Medians."""
    of: dict[str, list[float]] = defaultdict(list)
    for row in folder.rows.values():
        if row.difficulty is not None:
            of[row.generator or row.level].append(row.difficulty)
    return {name: round(float(np.median(values)), 3) for name, values in sorted(of.items())}
