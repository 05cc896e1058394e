"""A campaign: many attempts, a few at a time, each recorded as it ends. Bench, collection and sampling run through here.

Promises.

- A job whose key is done never runs again, and `append` records a result before anything else happens. A kill loses the attempts in flight.
- Groups take turns: each group's first job runs before any group's second job. A campaign that stops early has treated all groups alike.
- A budget that stops admits no new job; attempts in flight end and are recorded.
- An attempt that raises has failed for reasons that are ours (promise 8): it is reported, is not recorded, and the campaign goes on.
- Cancellation, a FatalStageError, and an error of `append` or of the observer end the campaign. Attempts in flight are cancelled first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container, Hashable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from etude.agent.policy.protocol import FatalStageError
from etude.rollout.retry import InfraFault
from etude.tasks.grading import describe_error

Work = TypeVar("Work")
Result = TypeVar("Result")
Record = TypeVar("Record")
Observed = TypeVar("Observed", contravariant=True)


@dataclass(frozen=True)
class CampaignJob(Generic[Work]):
    """One attempt to make. `key` is the same in every run of the campaign; groups take turns, and a group is usually a task."""

    key: str
    work: Work
    group: Hashable = None


class BudgetDecision(StrEnum):
    """May an attempt start?"""

    go = "go"
    wait = "wait"  # until one of those in flight has ended
    stop = "stop"  # the budget leaves no room for it, so the campaign starts nothing more


class CampaignBudget(Protocol):
    """Decides which jobs may start, by their keys. `decide` may answer `wait` only while an attempt is in flight."""

    def decide(self, key: str) -> BudgetDecision:
        """Whether this job may start now."""
        ...

    def start(self, key: str) -> None:
        """The job starts."""
        ...

    def end(self, key: str) -> None:
        """The job was recorded, failed or was cancelled."""
        ...

    def stop_reason(self, key: str) -> str:
        """Why this job can't start, for a person. Never empty."""
        ...


class UnlimitedBudget:
    """Admits every job."""

    def decide(self, key: str) -> BudgetDecision:
        return BudgetDecision.go

    def start(self, key: str) -> None: ...
    def end(self, key: str) -> None: ...
    def stop_reason(self, key: str) -> str:
        return "no budget is set"


class CampaignObserver(Protocol[Observed]):
    """Receives the progress of a campaign whose records are `Observed`. Its methods run on the event loop, so they must not block."""

    def on_start(self, job: CampaignJob[Any]) -> None:
        """An attempt starts."""
        ...

    def on_finish(self, job: CampaignJob[Any], record: Observed) -> None:
        """An attempt ended and was recorded; `append` returned the `record`."""
        ...

    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None:
        """No attempt could be made, and nothing was recorded."""
        ...

    def on_stop(self, reason: str) -> None:
        """The budget stopped the campaign. Called once at most."""
        ...


class NullCampaignObserver:
    """An observer that does nothing."""

    def on_start(self, job: CampaignJob[Any]) -> None: ...
    def on_finish(self, job: CampaignJob[Any], record: Any) -> None: ...
    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None: ...
    def on_stop(self, reason: str) -> None: ...


@dataclass
class CampaignSummary:
    """How one run of a campaign ended. `made`: attempts recorded by this run; `faults`: by key, in the order in which they happened."""

    made: int = 0
    faults: dict[str, InfraFault] = field(default_factory=dict)
    stopped: str = ""  # the budget's reason, if it stopped the campaign


async def run_campaign(
    jobs: Iterable[CampaignJob[Work]],
    attempt: Callable[[CampaignJob[Work]], Awaitable[Result]],
    *,
    done: Container[str] = frozenset(),
    append: Callable[[CampaignJob[Work], Result], Record],
    workers: int,
    budget: CampaignBudget | None = None,
    needed: Callable[[CampaignJob[Work]], bool] | None = None,
    observer: CampaignObserver[Record] | None = None,
) -> CampaignSummary:
    """Attempts every job whose key is not in `done`, at most `workers` at a time.

    `append` writes one result durably, without awaiting, and returns the record. `needed` is asked when a job's turn comes; a job that is not
    needed is skipped.

    Raises ValueError for two jobs of one key or fewer than one worker, FatalStageError, and what `append` or the observer raises.
    """
    if workers < 1:
        raise ValueError(f"a campaign needs at least 1 worker, got {workers}")
    ordered = take_turns(jobs)
    campaign = _Campaign(
        attempt, append, budget or UnlimitedBudget(), needed or (lambda job: True), observer or NullCampaignObserver()
    )
    await campaign.run((job for job in ordered if job.key not in done), workers)
    return campaign.summary


def take_turns(jobs: Iterable[CampaignJob[Work]]) -> list[CampaignJob[Work]]:
    """The jobs in fair order: the first of every group, then the second of every group. Groups and their jobs keep their order.

    Raises ValueError for two jobs of one key.
    """
    keys: set[str] = set()
    sizes: dict[Hashable, int] = {}
    rounds: list[list[CampaignJob[Work]]] = []
    for job in jobs:
        if job.key in keys:
            raise ValueError(f"two jobs of a campaign have the key {job.key!r}: give each its own")
        keys.add(job.key)
        place = sizes.setdefault(job.group, 0)
        sizes[job.group] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(job)
    order = {group: place for place, group in enumerate(sizes)}
    return [job for members in rounds for job in sorted(members, key=lambda job: order[job.group])]


class _Campaign(Generic[Work, Result, Record]):
    """One run: workers that share a list of jobs."""

    def __init__(
        self,
        attempt: Callable[[CampaignJob[Work]], Awaitable[Result]],
        append: Callable[[CampaignJob[Work], Result], Record],
        budget: CampaignBudget,
        needed: Callable[[CampaignJob[Work]], bool],
        observer: CampaignObserver[Record],
    ) -> None:
        self._attempt, self._append, self._budget, self._needed, self._observer = (
            attempt,
            append,
            budget,
            needed,
            observer,
        )
        self.summary = CampaignSummary()
        self._waiting: deque[CampaignJob[Work]] = deque()
        self._in_flight = 0
        self._ended = asyncio.Event()

    async def run(self, jobs: Iterable[CampaignJob[Work]], workers: int) -> None:
        self._waiting.extend(jobs)
        tasks = [asyncio.create_task(self._work()) for _ in range(min(workers, len(self._waiting)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting and not _is_cancelled():  # an attempt may swallow its cancellation
            job = self._waiting.popleft()
            if self._needed(job) and await self._is_admitted(job):
                await self._run_job(job)

    async def _is_admitted(self, job: CampaignJob[Work]) -> bool:
        """Waits until the budget decides. False if it stops, and then no job is left to start."""
        while (decision := self._budget.decide(job.key)) is BudgetDecision.wait:
            if not self._in_flight:
                raise RuntimeError(f"{job.key}: the budget waits for an attempt to end, and none is in flight")
            self._ended.clear()
            await self._ended.wait()
        if decision is BudgetDecision.go:
            return True
        self._waiting.clear()
        if not self.summary.stopped:
            self.summary.stopped = self._budget.stop_reason(job.key)
            self._observer.on_stop(self.summary.stopped)
        return False

    async def _run_job(self, job: CampaignJob[Work]) -> None:
        self._budget.start(job.key)
        self._in_flight += 1
        try:
            self._observer.on_start(job)
            try:
                result = await self._attempt(job)
            except FatalStageError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this attempt's
                self._fail(job, error)
            else:
                record = self._append(job, result)
                self.summary.made += 1
                self._observer.on_finish(job, record)
        finally:
            self._in_flight -= 1
            self._budget.end(job.key)
            self._ended.set()

    def _fail(self, job: CampaignJob[Work], error: Exception) -> None:
        if _is_cancelled():
            raise asyncio.CancelledError from error  # it took the place of the cancellation
        fault = error if isinstance(error, InfraFault) else InfraFault(f"{job.key}: {describe_error(error)}")
        if fault is not error:
            fault.__cause__ = error
        self.summary.faults[job.key] = fault
        self._observer.on_failure(job, fault)


def _is_cancelled() -> bool:
    """Whether the running task was cancelled."""
    running = asyncio.current_task()
    return running is not None and running.cancelling() > 0
