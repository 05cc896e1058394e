"""Grader `commands`: the agent's files with the reference's tests over them, in a fresh sandbox; FAIL_TO_PASS and PASS_TO_PASS.

Every file the agent left counts, new ones too, but for tests and what decides how tests run (`protected.py`): those are the
reference's (promise 9). The score is 1 if all named tests pass, else 0. What remains open, as in `tasks.real`: code under
test that lies about tests it knows by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from etude.sandbox.errors import InfraError, Unsupported, UserError
from etude.sandbox.protocol import Disposable, Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.workspace import opened
from etude.tasks.faults import Row, fault_of, told
from etude.tasks.protected import is_protected
from etude.tasks.running.supervised import watched
from etude.tasks.running.testrun import Opener, Ran, Tests, run_tests
from etude.tasks.solved import solved
from etude.tasks.task import Task, Verdict

NAME = "commands"
MAX_FILE_BYTES = 4 << 20
FEWEST_S, TIMES = 60.0, 10.0  # what hangs is cut off at ten times the reference's own time, a minute at least

Fit = Callable[[SandboxSpec, Task], SandboxSpec]


def unfitted(spec: SandboxSpec, task: Task) -> SandboxSpec:
    """Where a suite asks for nothing beside the files."""
    return spec


def machine(task: Task, pool: Machines, fit: Fit) -> Opener:
    """Fresh sandboxes for whole trees of this task, each a fork of its environment."""

    def adapt(spec: SandboxSpec) -> SandboxSpec:
        return watched(fit(spec, task))

    async def fresh(files: dict[str, bytes]) -> Disposable:
        try:
            return await opened(task, pool, SandboxSpec(), adapt, files)
        except UserError as error:
            await _possible(task, pool, adapt, error)
            raise

    return fresh


async def _possible(task: Task, pool: Machines, adapt: Callable[[SandboxSpec], SandboxSpec], error: UserError) -> None:
    """The control of files that a sandbox refused: the task's own must be taken. Raises Unsupported: no attempt is at fault then."""
    try:
        sandbox = await opened(task, pool, SandboxSpec(), adapt)
    except UserError:
        raise Unsupported(f"no sandbox can be made for task {task.id}: {error}") from error
    await sandbox.kill()


class CommandsGrader:
    """`hidden`: files, removed (of the reference's tests), tests, command, fail_to_pass, pass_to_pass, seconds."""

    def __init__(self, fit: Fit = unfitted) -> None:
        self.fit = fit

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        """Raises InfraError for what is no fault of the attempt (`tasks.faults`)."""
        start = time.perf_counter()
        hidden = task.hidden
        ran = await self._run(task, files, pool)
        names = [*hidden["fail_to_pass"], *hidden["pass_to_pass"]]
        found = {name: ran.honest and name in ran.run.passed for name in names}
        row = fault_of(ran, tests_of(task).kind)
        if row is not None:
            if row.fault == "doubtful":
                await self._well(task, pool, row)
            return Verdict(0.0, dict.fromkeys(names, False), told(row, ran), time.perf_counter() - start)
        reason = _objection(ran, found, len(hidden["fail_to_pass"]), hidden.get("universal", ()))
        return Verdict(float(not reason), found, reason, time.perf_counter() - start)

    async def _run(self, task: Task, files: dict[str, bytes], pool: Machines) -> Ran:
        limit_s = max(FEWEST_S, TIMES * float(task.hidden["seconds"]))
        return await run_tests(tests_of(task), graded_files(task, files), machine(task, pool, self.fit), limit_s)

    async def _well(self, task: Task, pool: Machines, row: Row) -> None:
        """The control of a doubtful end: the reference, here and now. Raises InfraError where that does not pass either."""
        ran = await self._run(task, solved(task), pool)
        if not ran.honest or not ran.run.passed >= {*task.hidden["fail_to_pass"]}:
            raise InfraError(
                f"{task.id}: {row.sign}, and the reference does not pass here either: {ran.objection or ran.said}"
            )


def tests_of(task: Task) -> Tests:
    """What grading runs."""
    hidden = task.hidden
    return Tests(tuple(hidden["tests"]), tuple(hidden["command"]), hidden.get("runner", ""))


def graded_files(task: Task, files: dict[str, bytes]) -> dict[str, bytes]:
    """What the tests run on: the agent's sources, the base's tests and settings, the reference's tests over them."""
    graded = {path: data for path, data in files.items() if not is_protected(path) and len(data) <= MAX_FILE_BYTES}
    graded |= {path: text.encode() for path, text in task.files.items() if is_protected(path)}
    for path in task.hidden["removed"]:
        graded.pop(path, None)
    return graded | {path: text.encode() for path, text in task.hidden["files"].items()}


def _objection(ran: Ran, found: dict[str, bool], telling: int, universal: Collection[str]) -> str:
    """Why the attempt doesn't count; empty if it does. The first `telling` names are those that the change makes pass; `universal`: the
    classes equal to anything that the reference has too."""
    if not ran.run.passed:
        return f"the tests did not run, or none passed (status {ran.run.rc})"
    if added := [name for name in ran.universal if name not in universal]:
        return f"objects of {added[0]} are equal to anything whatever: comparisons with them say nothing"
    for number, (name, good) in enumerate(found.items()):
        if not good:
            return f"{'not done' if number < telling else 'broke something else'}: failed {name}"
    return "" if telling else "no test shows the change"
