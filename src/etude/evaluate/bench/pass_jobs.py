"""The attempts of one policy in a benchmark as jobs of a campaign: every task in every pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from etude.evaluate.bench.outcome import OutcomeFile
from etude.rollout.batch import AttemptJob
from etude.rollout.campaign import CampaignJob
from etude.tasks.task import Task

# Apart by primes: a session's turns have the seeds between.
TASK_STRIDE = 1009
PASS_STRIDE = 1_000_003


def pass_jobs(tasks: Sequence[Task], passes: Mapping[str, int], seed: int) -> Iterable[CampaignJob[AttemptJob]]:
    """`passes`: of each task, by id. Tasks take turns, so a pass goes over all tasks before the next begins.

    A task's place and the pass make the seed, the same for every policy: with equal weights two policies answer alike, which pairs the
    comparison further.
    """
    for place, task in enumerate(tasks):
        for number in range(passes[task.id]):
            key = pass_key(task.id, number)
            yield CampaignJob(key, AttemptJob(task, key, seed + TASK_STRIDE * place + PASS_STRIDE * number), task.id)


def pass_key(task_id: str, number: int) -> str:
    """The name of one attempt in sessions, faults and progress."""
    return f"{task_id}#{number}"


def recorded_passes(file: OutcomeFile) -> set[str]:
    """The keys of the attempts that a file of outcomes holds."""
    return {pass_key(task_id, number) for task_id, number in file.outcomes}
