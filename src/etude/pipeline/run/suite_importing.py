"""Candidates of `etude bench import harbor`: run where their image is named, taken unrun and said so where it is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from etude.tasks.graders.script import ScriptGrader, sound
from etude.tasks.task import Task
from etude.tasks.validation.change import GradingContext
from etude.tasks.validation.suite_build import Candidate


def harbor_candidates(tasks: Sequence[Task], images: Mapping[str, str], bench: GradingContext) -> list[Candidate]:
    """In the order given; `metadata.checked` says whether a task was run."""
    grader = ScriptGrader(bench.grader.fit)

    def builder(task: Task, named: bool) -> Callable[[], Awaitable[Task]]:
        async def build() -> Task:
            marked = replace(task, metadata={**task.metadata, "checked": named})
            return await sound(marked, grader, bench.pool) if named else marked

        return build

    return [Candidate(task.id, builder(task, any(fnmatchcase(task.id, glob) for glob in images))) for task in tasks]
