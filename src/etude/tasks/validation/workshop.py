"""Makes tasks of candidates, in order, a few at a time; what was decided is written down, so that a kill costs what was in flight.

The folder of the work lies beside the suite to be: `asked.json` (of what it is made), `made.jsonl` (one line a candidate: taken, or
why not), `tasks/`. It goes when the suite is frozen.
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

ASKED, MADE = "asked.json", "made.jsonl"


@dataclass(frozen=True)
class Candidate:
    """A task to be. `build` raises CandidateRejected with the reason why it is none, and InfraError for what is no fault of its own."""

    id: str
    build: Callable[[], Awaitable[Task]]


@dataclass(frozen=True)
class Decision:
    """What became of a candidate; an empty reason: it was taken."""

    id: str
    reason: str = ""


class Workshop:
    """What was decided so far about the suite to be at `root`."""

    def __init__(self, root: Path, asked: dict[str, Any]) -> None:
        if root.exists():
            raise TaskError(f"{root} exists, and a suite is frozen: give another name, or --version and another --out")
        self.folder = root.parent / f".{root.name}.making"
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = self.folder / ASKED
        text = json.dumps(asked, sort_keys=True, default=str)
        if kept.is_file() and kept.read_text() != text:
            raise TaskError(
                f"{self.folder} holds a suite half made of something else: remove it, or ask for the same again"
            )
        kept.write_text(text)
        self._log = self.folder / MADE
        self.decisions = self._read()

    def decide(self, candidate_id: str, task: Task | None, reason: str = "") -> Decision:
        """Write down what became of a candidate; a taken task lies whole before its line does."""
        decision = Decision(candidate_id, reason)
        if task is not None:
            folder = folder_of(self.folder, candidate_id)
            shutil.rmtree(folder, ignore_errors=True)  # half of one, of a run that was killed
            write_task(task, folder)
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(json.dumps(vars(decision)) + "\n")
        self.decisions[candidate_id] = decision
        return decision

    def task(self, candidate_id: str) -> Task:
        return read_task(folder_of(self.folder, candidate_id))

    def close(self) -> None:
        """The suite is frozen: the work goes."""
        shutil.rmtree(self.folder)

    def _read(self) -> dict[str, Decision]:
        """A torn last line is no decision, and goes."""
        if not self._log.is_file():
            return {}
        data = self._log.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._log.write_bytes(whole)
        rows = [Decision(**json.loads(line)) for line in whole.splitlines()]
        return {row.id: row for row in rows}


def tidy(folder: Path) -> None:
    """Removes the work's own files from a finished folder."""
    for name in (ASKED, MADE):
        (folder / name).unlink(missing_ok=True)


async def make_tasks(
    candidates: Sequence[Candidate],
    workshop: Workshop,
    *,
    count: int | None = None,
    concurrency: int = 2,
    progress: Callable[[int, int, Decision], None] = lambda done, whole, last: None,
) -> tuple[list[Task], list[Decision]]:
    """The first `count` tasks that are sound, in order, and what was decided on the way. Never more are begun than may be
    needed, so that which tasks are taken depends on nothing but their order. Raises InfraError."""
    wanted = len(candidates) if count is None else count
    taken = sum(not workshop.decisions[c.id].reason for c in candidates if c.id in workshop.decisions)
    queue = _Queue([c for c in candidates if c.id not in workshop.decisions], wanted - taken)

    async def worker() -> None:
        while (candidate := await queue.next()) is not None:
            decision = await _decided(candidate, workshop)
            await queue.done(taken=not decision.reason)
            progress(len(workshop.decisions), len(candidates), decision)

    workers = [asyncio.create_task(worker()) for _ in range(max(1, concurrency))]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    decided = [workshop.decisions[c.id] for c in candidates if c.id in workshop.decisions]
    return [workshop.task(d.id) for d in decided if not d.reason][:wanted], decided


class _Queue:
    """Hands out candidates while those in flight could not yet make up the number."""

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


async def _decided(candidate: Candidate, workshop: Workshop) -> Decision:
    try:
        return workshop.decide(candidate.id, await candidate.build())
    except (CandidateRejected, Unsupported, HarborError) as error:
        return workshop.decide(candidate.id, None, str(error) or type(error).__name__)
