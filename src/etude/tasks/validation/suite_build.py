"""Builds the tasks of a suite from candidates, in order and a few at a time. Decisions are written down, so that a kill
costs only those in flight.

The build folder is next to the future suite. It holds `asked.json` (the inputs), `made.jsonl` (one line a candidate:
taken, or the reason why not) and `tasks/`. It is removed when the suite is frozen.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.sandbox.errors import Unsupported
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.harbor import HarborError, read_task, write_task
from etude.tasks.place import folder_of
from etude.tasks.task import Task

SETTINGS_FILE, MADE = "asked.json", "made.jsonl"


@dataclass(frozen=True)
class Candidate:
    """A candidate task.

    `build` raises CandidateRejected with the reason why it is not a task, and InfraError for faults that are not its
    own.
    """

    id: str
    build: Callable[[], Awaitable[Task]]


@dataclass(frozen=True)
class SuiteDecision:
    """What was decided about a candidate. An empty reason means that its task was taken."""

    id: str
    reason: str = ""


class SuiteBuild:
    """The decisions so far about the suite to be written to `root`."""

    def __init__(self, root: Path, settings: dict[str, Any]) -> None:
        if root.exists():
            raise TaskError(f"{root} exists, and a suite is frozen: give another name, or --version and another --out")
        self.folder = root.parent / f".{root.name}.making"
        self.folder.mkdir(parents=True, exist_ok=True)
        inputs = self.folder / SETTINGS_FILE
        text = json.dumps(settings, sort_keys=True, default=str)
        if inputs.is_file() and inputs.read_text() != text:
            raise TaskError(
                f"{self.folder} holds an unfinished suite with other inputs: remove it, or repeat the same inputs"
            )
        inputs.write_text(text)
        self._log = self.folder / MADE
        self.decisions = self._read()

    def decide(self, candidate_id: str, task: Task | None, reason: str = "") -> SuiteDecision:
        """Records what was decided about a candidate. A taken task is stored whole before its line is written."""
        decision = SuiteDecision(candidate_id, reason)
        if task is not None:
            folder = folder_of(self.folder, candidate_id)
            shutil.rmtree(folder, ignore_errors=True)  # left incomplete by a killed run
            write_task(task, folder)
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(json.dumps(vars(decision)) + "\n")
        self.decisions[candidate_id] = decision
        return decision

    def task(self, candidate_id: str) -> Task:
        return read_task(folder_of(self.folder, candidate_id))

    def close(self) -> None:
        """Removes the build folder once the suite is frozen."""
        shutil.rmtree(self.folder)

    def _read(self) -> dict[str, SuiteDecision]:
        """Removes a truncated last line, which decides nothing."""
        if not self._log.is_file():
            return {}
        data = self._log.read_bytes()
        complete = data[: data.rfind(b"\n") + 1]
        if len(complete) < len(data):
            self._log.write_bytes(complete)
        rows = [SuiteDecision(**json.loads(line)) for line in complete.splitlines()]
        return {row.id: row for row in rows}


def remove_build_files(folder: Path) -> None:
    """Removes the build's own files from a finished folder."""
    for name in (SETTINGS_FILE, MADE):
        (folder / name).unlink(missing_ok=True)


async def make_tasks(
    candidates: Sequence[Candidate],
    workshop: SuiteBuild,
    *,
    count: int | None = None,
    concurrency: int = 2,
    progress: Callable[[int, int, SuiteDecision], None] = lambda done, whole, last: None,
) -> tuple[list[Task], list[SuiteDecision]]:
    """The first `count` sound tasks in order, and the decisions on the way.

    No more candidates start than the count may need, so that the choice of tasks depends only on their order. Raises
    InfraError.
    """
    needed = len(candidates) if count is None else count
    taken = sum(not workshop.decisions[c.id].reason for c in candidates if c.id in workshop.decisions)
    queue = _Queue([c for c in candidates if c.id not in workshop.decisions], needed - taken)

    async def worker() -> None:
        while (candidate := await queue.next()) is not None:
            decision = await _build_candidate(candidate, workshop)
            await queue.done(taken=not decision.reason)
            progress(len(workshop.decisions), len(candidates), decision)

    workers = [asyncio.create_task(worker()) for _ in range(max(1, concurrency))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    decided = [workshop.decisions[c.id] for c in candidates if c.id in workshop.decisions]
    return [workshop.task(d.id) for d in decided if not d.reason][:needed], decided


class _Queue:
    """Hands out candidates while those in flight can't yet complete the number."""

    def __init__(self, waiting: Sequence[Candidate], missing: int) -> None:
        self._waiting = iter(waiting)
        self._missing = missing
        self._flying = 0
        self._news = asyncio.Condition()

    async def next(self) -> Candidate | None:
        async with self._news:
            await self._news.wait_for(lambda: self._missing <= 0 or self._flying < self._missing)
            found = None if self._missing <= 0 else next(self._waiting, None)
            self._flying += found is not None
            return found

    async def done(self, *, taken: bool) -> None:
        async with self._news:
            self._flying -= 1
            self._missing -= taken
            self._news.notify_all()


async def _build_candidate(candidate: Candidate, workshop: SuiteBuild) -> SuiteDecision:
    try:
        return workshop.decide(candidate.id, await candidate.build())
    except (CandidateRejected, Unsupported, HarborError) as error:
        return workshop.decide(candidate.id, None, str(error) or type(error).__name__)
