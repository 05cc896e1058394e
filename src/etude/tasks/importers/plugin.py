"""Tasks of a source in a person's own package, by import path: each is shown to be sound before it is taken (docs/extending/task_sources.md)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from etude.core.plugins import PluginError, import_object
from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Machines
from etude.tasks.audit import check
from etude.tasks.cheats.repository import cheats_with
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.grading import describe_error
from etude.tasks.registry import grade, no_grader
from etude.tasks.task import SPLITS, Grader, Split, Task, TaskSource
from etude.tasks.validation.suite_build import Candidate


def custom_source(path: str) -> TaskSource:
    """The source at an import path. Raises PluginError where it does not follow `TaskSource`."""
    found: Any = import_object(path)
    if isinstance(found, type):
        raise PluginError(f"{path} is a class; a source of tasks is an object, so name an instance of it")
    if not isinstance(getattr(found, "name", None), str):
        raise PluginError(f"{path} has no name; see docs/extending/task_sources.md")
    for method in ("ids", "task"):
        if not callable(getattr(found, method, None)):
            raise PluginError(f"{path} has no method {method}(); see docs/extending/task_sources.md")
    return cast(TaskSource, found)


def ids_of(path: str) -> dict[str, Split]:
    """All ids of the source with their splits, in its order. Raises PluginError for what it raises, and for an id of two splits."""
    source = custom_source(path)
    found: dict[str, Split] = {}
    for split in SPLITS:
        try:
            ids = list(source.ids(split))
        except Exception as error:  # a person's code may raise anything
            raise PluginError(f"{path}: ids({split!r}) failed: {describe_error(error)}") from error
        for task_id in ids:
            if not isinstance(task_id, str) or task_id in found:
                raise PluginError(f"{path}: ids({split!r}) gave {task_id!r}; an id is a text and belongs to one split")
            found[task_id] = split
    return found


def source_candidates(path: str, graders: Mapping[str, Grader], pool: Machines) -> list[Candidate]:
    """A candidate for each task of the source. Raises PluginError."""
    source = custom_source(path)
    return [
        Candidate(task_id, partial(_build, source, task_id, split, graders, pool))
        for task_id, split in ids_of(path).items()
    ]


async def _build(source: TaskSource, task_id: str, split: Split, graders: Mapping[str, Grader], pool: Machines) -> Task:
    """The task, if its reference scores 1, nothing done 0 and every cheat 0. Raises CandidateRejected, InfraError."""
    try:
        task: Any = source.task(task_id)
    except InfraError:
        raise
    except Exception as error:  # one bad task is left out with the reason, and the others are taken
        raise CandidateRejected(f"the source can't make it: {describe_error(error)}") from error
    if not isinstance(task, Task):
        raise CandidateRejected(f"the source gave {type(task).__name__}; it has to give a Task (etude.tasks.task)")
    if (task.id, task.split) != (task_id, split):
        raise CandidateRejected(f"the source gave {task.id!r} of the split {task.split!r}; {split!r} was listed")
    if task.grader not in graders:
        raise CandidateRejected(no_grader(task.grader, graders))
    found = await check(
        task, pool, grade=partial(grade, graders=graders), cheats=cheats_with(task, graders[task.grader])
    )
    if not found.sound:
        raise CandidateRejected(f"not sound: {found.complaint()}")
    return task
