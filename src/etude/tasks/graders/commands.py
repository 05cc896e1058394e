"""Grader `commands`: the agent's files with the reference's tests over them, in a fresh sandbox; FAIL_TO_PASS and PASS_TO_PASS.

Every file the agent left counts, new ones too, but for tests and what decides how tests run (`protected.py`): those are the
reference's (promise 9). The score is 1 if all named tests pass, else 0. What remains open, as in `tasks.real`: code under
test that lies about tests it knows by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from etude.sandbox.errors import InfraError, Unsupported, UserError
from etude.sandbox.protocol import Disposable, Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.errors import TaskDefective
from etude.tasks.faults import FaultRow
from etude.tasks.graders.judged import graded_files, judge_hidden_tests, limit_s, tests_to_grade
from etude.tasks.running.supervised import supervised_spec
from etude.tasks.running.testrun import Opener, RunReport, Tests, run_tests
from etude.tasks.solved import reference_files
from etude.tasks.task import Task, Verdict

NAME = "commands"

Fit = Callable[[SandboxSpec, Task], SandboxSpec]


def keep_spec(spec: SandboxSpec, task: Task) -> SandboxSpec:
    """Where a suite asks for nothing but the files."""
    return spec


def machine(task: Task, pool: Machines, fit: Fit) -> Opener:
    """Fresh sandboxes for whole trees of this task, each a fork of its environment."""

    def adapt(spec: SandboxSpec) -> SandboxSpec:
        return supervised_spec(fit(spec, task))

    async def fresh(files: dict[str, bytes]) -> Disposable:
        try:
            return await open_workspace(task, pool, SandboxSpec(), adapt, files)
        except UserError as error:
            await _possible(task, pool, adapt, error)
            raise

    return fresh


async def _possible(task: Task, pool: Machines, adapt: Callable[[SandboxSpec], SandboxSpec], error: UserError) -> None:
    """The control of files that a sandbox refused: the task's own must be taken. Raises Unsupported: no attempt is at fault then."""
    try:
        sandbox = await open_workspace(task, pool, SandboxSpec(), adapt)
    except UserError:
        raise Unsupported(f"no sandbox can be made for task {task.id}: {error}") from error
    await sandbox.kill()


class CommandsGrader:
    """`hidden`: files, removed (of the reference's tests), tests, command, fail_to_pass, pass_to_pass, seconds."""

    def __init__(self, fit: Fit = keep_spec) -> None:
        self.fit = fit

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        """Raises InfraError for what is no fault of the attempt (`tasks.faults`)."""
        start = time.perf_counter()
        ran = await self._run(task, files, pool)
        outcome = judge_hidden_tests(task.hidden, ran)
        if outcome.fault is not None and outcome.fault.fault == "doubtful":
            await self._well(task, pool, outcome.fault)
            # The machine is well now. Was it then? A process that the kernel chose when memory was short is no evidence: the second run says.
            outcome = judge_hidden_tests(task.hidden, await self._run(task, files, pool))
        return Verdict(float(not outcome.reason), outcome.tests, outcome.reason, time.perf_counter() - start)

    async def _run(self, task: Task, files: dict[str, bytes], pool: Machines) -> RunReport:
        fresh, limit = machine(task, pool, self.fit), limit_s(task.hidden["seconds"])
        return await run_tests(tests_of(task), graded_files(task, files), fresh, limit)

    async def _well(self, task: Task, pool: Machines, row: FaultRow) -> None:
        """The control of a doubtful end: the reference, here and now. Raises InfraError where its tests do not run either, and TaskDefective
        where they run and it does not pass."""
        ran = await self._run(task, reference_files(task), pool)
        if not ran.honest or not ran.run.passed:
            raise InfraError(
                f"{task.id}: {row.sign}, and the reference does not pass here either: {ran.objection or ran.output}"
            )
        if missing := [name for name, good in judge_hidden_tests(task.hidden, ran).tests.items() if not good]:
            raise TaskDefective(
                f"task {task.id}: its reference does not pass {missing[0]} here and now ({len(missing)} of its tests), so no attempt can be "
                "judged: the test may hold on the day of its proof alone; mend or remove the task (etude tasks check)"
            )


def tests_of(task: Task) -> Tests:
    """What grading runs."""
    return tests_to_grade(task.hidden)
