"""Rejection sampling: a teacher tries every task, round after round, until enough of its sessions are worth keeping.

A round goes over all tasks before the next begins, so a collection that is stopped early has sessions of the largest possible number of tasks.
Sessions are kept that passed (or all, where that is requested). Of two sessions of a task that left the same files the second is dropped,
because it teaches the same. Sessions are the harness' own files (promise 1) with the verdict as their last entry. Infrastructure faults are
reported and retried by the next run (promise 8).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from etude.core.trace.completion import Usage
from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.rollout.collect.tries import CollectedAttempt, CollectionLog
from etude.rollout.keep import keep_session
from etude.rollout.retry import InfraFault
from etude.tasks.task import Task

Keep = Literal["passed", "all"]
SEED_STRIDE = 1_000_003  # apart from the turns of one session


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


@dataclass
class CollectionSummary:
    """How a run of it ended."""

    made: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    stopped: str = ""


class Collection:
    """One run over what earlier runs of the folder tried."""

    def __init__(
        self,
        wanted: CollectionSettings,
        setup: AttemptSetup,
        folder: Path,
        tries: CollectionLog,
        progress: Callable[[CollectedAttempt | str], None] = lambda last: None,
    ) -> None:
        self.wanted, self.setup, self.folder, self.tries, self.progress = wanted, setup, folder, tries, progress
        self.collected = CollectionSummary()
        self._flying: dict[str, int] = {}

    async def run(self) -> CollectionSummary:
        jobs = self._jobs()
        workers = [asyncio.create_task(self._work(jobs)) for _ in range(self.wanted.concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return self.collected

    def _jobs(self) -> Iterator[tuple[str, int]]:
        """What may still be needed, looked at when its turn comes."""
        for number in range(self.wanted.tries):
            for task_id in self.wanted.tasks:
                if (task_id, number) not in self.tries.rows and not self._enough(task_id):
                    yield task_id, number

    def _enough(self, task_id: str) -> bool:
        return len(self.tries.kept(task_id)) >= self.wanted.per_task

    async def _work(self, jobs: Iterator[tuple[str, int]]) -> None:
        for task_id, number in jobs:
            if self.wanted.max_dollars is not None and self.tries.dollars >= self.wanted.max_dollars:
                self.collected.stopped = f"${self.tries.dollars:.2f} are spent of ${self.wanted.max_dollars:.2f}"
                return
            name = f"{task_id}#{number}"
            seed = self.wanted.seed + SEED_STRIDE * number + 1009 * self.wanted.tasks.index(task_id)
            task = self.wanted.task(task_id)
            try:
                made = await attempt(task, self.setup, name=name, seed=seed)
            except InfraFault as fault:
                self.collected.faults[name] = str(fault)
                self.progress(f"{name}: a fault of ours: {fault}")
            else:
                self._take(made, task, number)

    def _take(self, made: Attempt, task: Task, number: int) -> None:
        """The session lies whole before its line does."""
        digest = changed(task, made.files)
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
        self.collected.made += 1
        self.progress(row)

    def _objection(self, made: Attempt, task_id: str, digest: str) -> str:
        """Why the session is not kept; empty if it is."""
        if self.wanted.keep == "passed" and not made.verdict.passed:
            return f"not passed: {made.verdict.reason}"[:300]
        if self._enough(task_id):
            return "enough sessions of this task were kept meanwhile"
        for other in self.tries.kept(task_id):
            if other.files == digest:
                return f"left the same files as try {other.number}"
        return ""


def changed(task: Task, files: dict[str, bytes]) -> str:
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
