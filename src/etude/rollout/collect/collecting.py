"""Rejection sampling: a teacher tries every task, round after round, until enough of its sessions are worth keeping.

A round goes over all tasks before the next begins, so a collection that is stopped early has sessions of the largest possible number of tasks.
Sessions are kept that passed (or all, where that is requested). Of two sessions of a task that left the same files the second is dropped,
because it teaches the same. Sessions are the harness' own files (promise 1) with the verdict as their last entry. Infrastructure faults are
reported and retried by the next run (promise 8).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from etude.core.trace.completion import Usage
from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.rollout.campaign import BudgetDecision, CampaignJob, CampaignObserver, CampaignSummary, run_campaign
from etude.rollout.collect.tries import CollectedAttempt, CollectionLog
from etude.rollout.keep import keep_session
from etude.tasks.task import Task

Keep = Literal["passed", "all"]
SEED_STRIDE, TASK_STRIDE = 1_000_003, 1009  # tries and tasks; apart from the turns of one session


@dataclass(frozen=True)
class CollectionSettings:
    """`per_task` sessions of each task at most, in `tries` attempts at most; `max_dollars`: nothing is begun beyond that.

    `dollars` says what a turn cost, None where it is unknown."""

    tasks: Sequence[str]
    task: Callable[[str], Task]
    keep: Keep = "passed"
    per_task: int = 1
    tries: int = 1
    concurrency: int = 4
    seed: int = 0
    max_dollars: float | None = None
    dollars: Callable[[Usage], float | None] = lambda usage: None
    facts: dict[str, Any] = field(default_factory=dict)  # into every session's header: teacher, effort


@dataclass(frozen=True)
class CollectionTry:
    """One attempt to make: try `number` at a task. `place`: the task's, in the order of the collection."""

    task_id: str
    place: int
    number: int


@dataclass(frozen=True)
class CollectionBudget:
    """Nothing starts once the attempts of the folder cost `cap` dollars or more."""

    cap: float
    tries: CollectionLog

    def decide(self, key: str) -> BudgetDecision:
        return BudgetDecision.stop if self.tries.dollars >= self.cap else BudgetDecision.go

    def start(self, key: str) -> None: ...
    def end(self, key: str) -> None: ...
    def stop_reason(self, key: str) -> str:
        return f"${self.tries.dollars:.2f} are spent of ${self.cap:.2f}"


class Collection:
    """One run over what earlier runs of the folder tried."""

    def __init__(
        self,
        wanted: CollectionSettings,
        setup: AttemptSetup,
        folder: Path,
        tries: CollectionLog,
        observer: CampaignObserver[CollectedAttempt] | None = None,
    ) -> None:
        self.wanted, self.setup, self.folder, self.tries, self.observer = wanted, setup, folder, tries, observer

    async def run(self) -> CampaignSummary:
        """Raises FatalStageError where the teacher is gone; what was tried by then is in the log."""
        cap = self.wanted.max_dollars
        return await run_campaign(
            self._jobs(),
            self._attempt,
            done={try_key(*key) for key in self.tries.rows},
            append=self._append,
            workers=self.wanted.concurrency,
            budget=None if cap is None else CollectionBudget(cap, self.tries),
            needed=lambda job: not self._has_enough(job.work.task_id),
            observer=self.observer,
        )

    def _jobs(self) -> Iterator[CampaignJob[CollectionTry]]:
        for place, task_id in enumerate(self.wanted.tasks):
            for number in range(self.wanted.tries):
                yield CampaignJob(try_key(task_id, number), CollectionTry(task_id, place, number), task_id)

    def _has_enough(self, task_id: str) -> bool:
        return len(self.tries.kept_attempts(task_id)) >= self.wanted.per_task

    async def _attempt(self, job: CampaignJob[CollectionTry]) -> tuple[Task, Attempt]:
        work = job.work
        seed = self.wanted.seed + SEED_STRIDE * work.number + TASK_STRIDE * work.place
        task = self.wanted.task(work.task_id)
        return task, await attempt(task, self.setup, name=job.key, seed=seed)

    def _append(self, job: CampaignJob[CollectionTry], result: tuple[Task, Attempt]) -> CollectedAttempt:
        """The session lies whole before its line does."""
        (task, made), number = result, job.work.number
        digest = change_digest(task, made.files)
        why = self._objection(made, task.id, digest)
        path = "" if why else session_name(task.id, number)
        if path:
            facts = {
                "stage": "collected",
                "level": task.level,
                "category": task.category,
                "competent": made.verdict.passed,
            }
            keep_session(self.folder / path, made, {**facts, **self.wanted.facts, "try": number})
        usages = usages_of(made)
        paid = [self.wanted.dollars(usage) for usage in usages]
        row = CollectedAttempt(
            task.id, number, made.verdict.score, not why, path, why, digest, len(usages),
            sum(usage.input_tokens for usage in usages), sum(usage.output_tokens for usage in usages),
            None if any(one is None for one in paid) else round(sum(one or 0.0 for one in paid), 6),
            round(made.seconds["all"], 2),
        )  # fmt: skip
        self.tries.add(row)
        return row

    def _objection(self, made: Attempt, task_id: str, digest: str) -> str:
        """Why the session is not kept; empty if it is."""
        if self.wanted.keep == "passed" and not made.verdict.passed:
            return f"not passed: {made.verdict.reason}"[:300]
        if self._has_enough(task_id):
            return "enough sessions of this task were kept meanwhile"
        for other in self.tries.kept_attempts(task_id):
            if other.files == digest:
                return f"left the same files as try {other.number}"
        return ""


def try_key(task_id: str, number: int) -> str:
    """The name of one attempt in the campaign and in its faults."""
    return f"{task_id}#{number}"


def change_digest(task: Task, files: dict[str, bytes]) -> str:
    """What an attempt changed, as a digest: the same work gives the same, whatever was said on the way."""
    digest = hashlib.sha256()
    for path in sorted({*task.files, *files}):
        before, after = task.files.get(path), files.get(path)
        if after is None:
            digest.update(f"gone {path}\0".encode(errors="surrogateescape"))
        elif before is None or before.encode() != after:
            digest.update(f"{len(after)} {path}\0".encode(errors="surrogateescape") + after)
    return digest.hexdigest()[:32]


def session_name(task_id: str, number: int) -> str:
    """Flat and sorted by task, as sessions' readers expect."""
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', task_id)[:160]}-{number:03d}.jsonl"


def usages_of(made: Attempt) -> list[Usage]:
    """What each turn of the scored try cost."""
    return [Usage(**entry.data["usage"]) for entry in made.outcome.session.of("completion")]
