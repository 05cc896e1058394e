"""Writes measured difficulty into a folder's tasks, and says how well the prior foretold what rollouts found."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from etude.tasks.difficulty.solver import effort
from etude.tasks.stats import spread
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task

# From what was measured to one number in [0, 1]: how often the task is expected not to be solved.
#
# Without rollouts it is a prior: the mean of three logarithms, each 1 at a bound that few tasks reach. It puts tasks
# in an order and is no probability of anybody's. Rollouts decide as they come in: the prior weighs as much as
# `PRIOR_ATTEMPTS` of them (a beta distribution's mean).


MOST_LINES, MOST_FILES, MOST_READ = 1000, 20, 20_000  # of a reference; lines that the scripted solver reads
PRIOR_ATTEMPTS = 4


@dataclass(frozen=True)
class DifficultySample:
    """A rollout at a task. `thinking`: tokens; None if they were not counted."""

    task: str
    score: float
    turns: float
    thinking: float | None = None


def prior(lines: int, files: int, read: int) -> float:
    """Grows with each."""
    parts = ((lines, MOST_LINES), (files, MOST_FILES), (read, MOST_READ))
    return sum(min(1.0, math.log1p(max(0, value)) / math.log1p(most)) for value, most in parts) / len(parts)


def score(before: float, samples: Iterable[DifficultySample]) -> float:
    """`before` is the prior."""
    scores = [one.score for one in samples]
    return (PRIOR_ATTEMPTS * before + sum(1 - one for one in scores)) / (PRIOR_ATTEMPTS + len(scores))


def measure_difficulty(task: Task, samples: Iterable[DifficultySample] = ()) -> dict[str, Any]:
    """What `metadata.difficulty` holds."""
    samples = list(samples)
    changed, solver = task.metadata.get("changed", {}), effort(task)
    lines, files = int(changed.get("lines", solver.edits)), int(changed.get("files", len(task.solution)))
    before = prior(lines, files, solver.lines)
    return {
        "score": round(score(before, samples), 4),
        "prior": round(before, 4),
        "reference": {"lines": lines, "files": files, "edits": solver.edits},
        "solver": {"files": solver.files, "lines": solver.lines},
        **({"rollouts": _rollouts(samples)} if samples else {}),
    }


def _rollouts(samples: list[DifficultySample]) -> dict[str, Any]:
    thinking = [one.thinking for one in samples if one.thinking is not None]
    return {
        "attempts": len(samples),
        "mean": round(sum(one.score for one in samples) / len(samples), 4),
        "turns": round(sum(one.turns for one in samples) / len(samples), 2),
        **({"thinking_tokens": round(sum(thinking) / len(thinking), 1)} if thinking else {}),
    }


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
        "foretold": prior_correlation(found.values()),
        "by_generator": _by_generator(folder),
    }


def prior_correlation(found: Iterable[dict[str, Any]]) -> float | None:
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
