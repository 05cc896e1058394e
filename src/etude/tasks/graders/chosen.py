"""How some test files of a task are run: by the test plan of its environment, else by the pinned pytest."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from etude.tasks.environment.environment import TestPlan, environment_of
from etude.tasks.running.testrun import Tests
from etude.tasks.task import Task


def tests_of(task: Task, files: Sequence[str], needed: Collection[str] = ()) -> Tests:
    environment = environment_of(task.metadata)
    plan = environment.tests if environment is not None else TestPlan()
    return Tests(tuple(files), plan.command, plan.runner, frozenset(needed))
