"""From what was measured to one number in [0, 1]: how often the task is expected not to be solved.

Without rollouts it is a prior: the mean of three logarithms, each 1 at a bound that few tasks reach. It puts tasks in an order and is no
probability of anybody's. Rollouts decide as they come in: the prior weighs as much as `PRIOR_ATTEMPTS` of them (a beta distribution's mean).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from etude.tasks.difficulty.solver import effort
from etude.tasks.task import Task

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
