"""Many attempts whose results are kept in memory: a campaign that nothing resumes. `rl` has its own controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.rollout.campaign import CampaignJob, NullCampaignObserver, run_campaign
from etude.rollout.retry import InfraFault
from etude.tasks.task import Task


@dataclass(frozen=True)
class AttemptJob:
    """One attempt to make."""

    task: Task
    name: str
    seed: int | None = None
    group: int = 0
    member: int = 0  # of the group


@dataclass
class Batch:
    """What came of the jobs, in their order. A job met by infra faults is in `faults` by name and has no attempt."""

    attempts: list[Attempt] = field(default_factory=list)
    faults: dict[str, InfraFault] = field(default_factory=dict)


Progress = Callable[[int, int, Attempt | InfraFault], None]


def make_attempts(setup: AttemptSetup) -> Callable[[CampaignJob[AttemptJob]], Awaitable[Attempt]]:
    """What a campaign of attempt jobs does with each of them. The function raises InfraFault and FatalStageError."""

    async def make_attempt(job: CampaignJob[AttemptJob]) -> Attempt:
        work = job.work
        return await attempt(work.task, setup, name=work.name, seed=work.seed, group=work.group)

    return make_attempt


async def run_batch(
    jobs: Sequence[AttemptJob], setup: AttemptSetup, *, concurrency: int, progress: Progress | None = None
) -> Batch:
    """All jobs, at most `concurrency` at a time, started in their order; on cancellation the others are stopped and cleaned up.

    `progress(done, total, last)` is called after each. Raises ValueError for two jobs of one name, FatalStageError.
    """
    if concurrency < 1:
        raise ValueError(f"a batch needs a concurrency of at least 1, got {concurrency}")
    made: dict[str, Attempt] = {}

    def keep(job: CampaignJob[AttemptJob], result: Attempt) -> Attempt:
        made[job.key] = result
        return result

    summary = await run_campaign(
        [CampaignJob(job.name, job) for job in jobs],
        make_attempts(setup),
        append=keep,
        workers=concurrency,
        observer=None if progress is None else _BatchProgress(progress, len(jobs)),
    )
    faults = {job.name: summary.faults[job.name] for job in jobs if job.name in summary.faults}
    return Batch([made[job.name] for job in jobs if job.name in made], faults)


class _BatchProgress(NullCampaignObserver):
    """Counts what has ended."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def on_finish(self, job: CampaignJob[Any], record: Attempt) -> None:
        self._report(record)

    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None:
        self._report(fault)

    def _report(self, last: Attempt | InfraFault) -> None:
        self._done += 1
        self._progress(self._done, self._total, last)
