"""Before step 1: how many of the tasks can the policy solve at all, in eight attempts?

Tasks that it never solves give groups where all fail, tasks that it always solves give groups where all succeed: what RL learns from lies
between. A run that starts with a small share wants easier tasks or more SFT, and its owner should hear that before the run, not after it.

The tasks are the first of the schedule, in its own mix of levels; their attempts are not trained on. A few tasks per level tell little
of a level, so the interval of the whole is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from etude.core.events.finite import dumps
from etude.core.files import replace_file
from etude.core.statistics.bounded import average
from etude.rl.observer import RunObserver
from etude.rollout.attempt import AttemptSetup
from etude.rollout.batch import AttemptJob, run_batch
from etude.tasks.task import Task

SOLVABLE = "solvable.json"
ATTEMPTS = 8
RESAMPLES = 1_000
FIRST_SEED = 1 << 39  # beyond those of the attempts that are trained on


@dataclass(frozen=True)
class SolvableShare:
    """Shares of tasks, in [0, 1]; `interval`: 95%, of `share`."""

    tasks: int
    attempts: int  # at each
    share: float  # solved at least once
    interval: tuple[float, float]
    passed: float  # of all attempts
    always: float  # solved every time: nothing but effort is left to learn
    never: float
    levels: dict[str, float]  # solved at least once, by level

    def description(self) -> str:
        low, high = self.interval
        return (
            f"before step 1: {100 * self.share:.0f}% of {self.tasks} tasks are solvable in {self.attempts} attempts (95%: {100 * low:.0f} to "
            f"{100 * high:.0f}), {100 * self.always:.0f}% are solved every time; {100 * self.passed:.0f}% of the attempts passed"
        )


def solvable(passes: Sequence[tuple[str, Sequence[bool]]], seed: int) -> SolvableShare:
    """`passes`: of each task its level, and whether its attempts passed. Raises ValueError without any."""
    if not passes:
        raise ValueError("no task was attempted, so nothing is known of what can be solved")
    once = np.array([any(row) for _, row in passes], dtype=float)
    found = average({"": once}, {"": 1.0}, resamples=RESAMPLES, seed=seed)
    by_level: defaultdict[str, list[float]] = defaultdict(list)
    for level, row in passes:
        by_level[level].append(float(any(row)))
    return SolvableShare(
        tasks=len(passes),
        attempts=max(len(row) for _, row in passes),
        share=float(once.mean()),
        interval=(found.low, found.high),
        passed=float(np.mean([value for _, row in passes for value in row])),
        always=float(np.mean([all(row) for _, row in passes])),
        never=float(1 - once.mean()),
        levels={level: float(np.mean(row)) for level, row in sorted(by_level.items())},
    )


async def measure(
    tasks: Sequence[Task],
    setup: AttemptSetup,
    path: Path,
    *,
    concurrency: int,
    seed: int,
    observer: RunObserver,
) -> SolvableShare:
    """Attempt the tasks with the policy that serves now and write `path`; infra faults leave attempts out (promise 8)."""
    jobs = [
        AttemptJob(
            task, f"solvable-{place}.{number}", seed=(seed << 40) + FIRST_SEED + place * ATTEMPTS + number, group=place
        )
        for place, task in enumerate(tasks)
        for number in range(ATTEMPTS)
    ]
    phase = lambda done: observer.phase(f"checking {len(tasks)} tasks, {done} of {len(jobs)} attempts")
    phase(0)
    batch = await run_batch(jobs, setup, concurrency=concurrency, progress=lambda done, total, last: phase(done))
    for fault in batch.faults.values():
        observer.note(f"solvable share without {fault}")
    passed: defaultdict[int, list[bool]] = defaultdict(list)
    for attempt in batch.attempts:
        passed[attempt.rollout.group].append(attempt.verdict.passed)
    found = solvable([(tasks[place].level, row) for place, row in sorted(passed.items())], seed)
    replace_file(path, dumps(asdict(found), indent=1) + "\n")
    observer.note(found.description())
    return found
