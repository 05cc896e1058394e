"""Many attempts at once with a bound on how many run. Used by bench and factory; rl has its own controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.rollout.retry import InfraFault
from etude.tasks.task import Task


@dataclass(frozen=True)
class AttemptJob:
    """One attempt to make."""

    task: Task
    name: str
    seed: int | None = None
    group: int = 0


@dataclass
class Batch:
    """What came of the jobs, in their order. A job met by infra faults is in `faults` by name and has no attempt."""

    attempts: list[Attempt] = field(default_factory=list)
    faults: dict[str, InfraFault] = field(default_factory=dict)


Progress = Callable[[int, int, Attempt | InfraFault], None]


async def run_batch(
    jobs: Sequence[AttemptJob], setup: AttemptSetup, *, concurrency: int, progress: Progress | None = None
) -> Batch:
    """All jobs, at most `concurrency` at a time; on cancellation or a bug in one, the others are stopped and cleaned up.

    `progress(done, total, last)` is called after each.
    """
    if concurrency < 1:
        raise ValueError(f"a batch needs a concurrency of at least 1, got {concurrency}")
    results: dict[int, Attempt | InfraFault] = {}
    waiting = iter(enumerate(jobs))

    async def worker() -> None:
        for index, job in waiting:
            try:
                result = await attempt(job.task, setup, name=job.name, seed=job.seed, group=job.group)
            except InfraFault as fault:
                result = fault
            results[index] = result
            if progress is not None:
                progress(len(results), len(jobs), result)

    workers = [asyncio.create_task(worker()) for _ in range(min(concurrency, len(jobs)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    batch = Batch()
    for index, job in enumerate(jobs):
        result = results[index]
        if isinstance(result, Attempt):
            batch.attempts.append(result)
        else:
            batch.faults[job.name] = result
    return batch
