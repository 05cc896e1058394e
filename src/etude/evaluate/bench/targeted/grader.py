"""Grader `targeted`: the checks of the log and the files, then the task's hidden calls if it has some. Passed only if all hold, so that
neither good manners without the work nor the work without them counts."""

from __future__ import annotations

import time

from etude.core.trace.session import Session
from etude.evaluate.bench.targeted.checks import Work, run_checks
from etude.sandbox.protocol import Machines
from etude.tasks.graders.outputs import behaviour
from etude.tasks.restore import restore_files
from etude.tasks.task import Task, Verdict

NAME = "targeted"


class TargetedGrader:
    """`hidden["check"]`: see `checks`; `hidden["calls"]`: as grader `outputs` has them."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        """Files alone don't say how the agent worked. Raises ValueError."""
        raise ValueError(f"task {task.id} is judged by its session too: grade it through an attempt")

    async def grade_session(self, task: Task, files: dict[str, bytes], session: Session, pool: Machines) -> Verdict:
        start = time.perf_counter()
        tests = run_checks(Work(task, files, session))
        if task.hidden.get("calls"):
            return await behaviour(task, restore_files(task, files), pool, tests)
        failed = next((name for name, good in tests.items() if not good), "")
        passed = bool(tests) and not failed
        return Verdict(float(passed), tests, f"failed {failed}" if failed else "", time.perf_counter() - start)
