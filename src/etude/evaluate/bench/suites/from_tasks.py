"""Candidates from the task rooms: a folder of Harbor directories, the exercises of a recipe, the bugs in real packages."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from etude.sandbox.protocol import Machines
from etude.tasks.audit import check
from etude.tasks.cheats.repository import cheats_with
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.grading import graded
from etude.tasks.registry import no_grader
from etude.tasks.task import Grader, Split, Task, Verdict
from etude.tasks.validation.suite_build import Candidate

# Exercises have a hundred thousand ids and more: a suite of one's own needs some hundreds.
MOST = 2000


@dataclass(frozen=True)
class Choice:
    """Which tasks are wanted; None: all."""

    category: str | None = None
    level: str | None = None
    split: Split | None = None

    def takes(self, task: Task) -> bool:
        wanted = (self.category, self.level, self.split)
        return all(
            w is None or w == found for w, found in zip(wanted, (task.category, task.level, task.split), strict=True)
        )


def candidates(
    ids: Sequence[str],
    make: Callable[[str], Task],
    choice: Choice,
    seed: int,
    pool: Machines,
    graders: Mapping[str, Grader],
) -> list[Candidate]:
    """Those that are wanted, in an order that the seed draws; of very many no more than are looked at. What is trained on is left out unless
    it is asked for by its split (promise 10)."""
    drawn = random.Random(seed).sample(range(len(ids)), min(len(ids), MOST))
    wanted = (task for task in (make(ids[number]) for number in drawn) if choice.takes(task))
    return [Candidate(task.id, _builder(task, pool, graders, trained=choice.split is None)) for task in wanted]


def _builder(task: Task, pool: Machines, graders: Mapping[str, Grader], *, trained: bool):
    async def grade(task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        return await graded(graders[task.grader], task, files, pool)

    async def build() -> Task:
        if trained and task.split == "train":
            raise CandidateRejected(
                "it is of the training split: a suite of it would measure what was learnt (--split train takes it)"
            )
        if task.grader not in graders:
            raise CandidateRejected(no_grader(task.grader, graders))
        found = await check(task, pool, grade=grade, cheats=cheats_with(task, graders[task.grader]))
        if not found.sound:
            raise CandidateRejected(f"not sound: {found.complaint()}")
        return task

    return build
