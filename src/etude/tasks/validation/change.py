"""Turns two states of a repository into a task (what the agent sees, the reference, what is hidden) and proves it."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from etude.sandbox.protocol import Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.audit import check
from etude.tasks.cheats.exercise import nop
from etude.tasks.cheats.repository import Cheat, cheats_for
from etude.tasks.environment.environment import environment_of
from etude.tasks.fail_to_pass import CandidateRejected, FailToPassProof, prove_fail_to_pass
from etude.tasks.graders.commands import NAME, CommandsGrader, Fit, machine
from etude.tasks.graders.judged import XFAILED, graded_files
from etude.tasks.protected import is_protected, is_test
from etude.tasks.running.testrun import Runner, RunReport, Tests, run_tests, visible_command
from etude.tasks.solved import reference_files
from etude.tasks.task import Task

# Runs the tests 40 days and 5 hours later, where libfaketime is installed (Debian: the package libfaketime).
#
# A test that passes only near the moment of its proof (an expired certificate, the end of a year, an hour in a name)
# has another result then.


# Crosses at least one end of a month and changes the time of day.
OFFSET_S = 40 * 86_400 + 5 * 3600
_LIBRARY_GLOB = "/usr/lib/*/faketime/libfaketime.so.1"  # in the host's system folders, which sandboxes share


@cache
def library() -> str:
    """The path of libfaketime; empty where it is not installed."""
    return next(iter(sorted(glob.glob(_LIBRARY_GLOB))), "")


def on_a_later_date(tests: Tests, task: Task, pool: Machines, fit: Fit, timeout_s: float) -> Runner | None:
    """A runner of the same tests; None without the library or in an image, whose system differs from the host's."""
    environment = environment_of(task.metadata)
    if not library() or environment is not None and environment.image:
        return None
    env = {
        "LD_PRELOAD": library(),
        "FAKETIME": f"+{OFFSET_S}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }

    def fitted(spec: SandboxSpec, task: Task) -> SandboxSpec:
        fitted_spec = fit(spec, task)
        return replace(fitted_spec, env={**fitted_spec.env, **env})

    async def run(files: Mapping[str, bytes]) -> RunReport:
        return await run_tests(tests, files, machine(task, pool, fitted), timeout_s)

    return run


# What pytest collects by itself (python_files).
PYTEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")


@dataclass(frozen=True)
class RepositoryChange:
    """A candidate task. `before` and `after` are whole trees; `others` are further solutions of the same request, also
    whole trees."""

    id: str
    category: str
    level: str
    instruction: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    others: Sequence[Mapping[str, str]] = ()
    command: tuple[str, ...] = ()
    visible: tuple[str, ...] | None = None  # what the agent's test tool runs; None: derived from the command
    tests: tuple[str, ...] | None = None  # the test files to run; None: all that pytest would collect
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GradingContext:
    """Where changes are proved: the sandboxes, the grader and the time limit of a test run."""

    pool: Machines
    grader: CommandsGrader
    timeout_s: float


async def prove_change(change: RepositoryChange, bench: GradingContext, *, xfail: bool = False) -> Task:
    """Returns the proved task: reference and other solutions score 1, no change and every cheat score 0.

    Raises CandidateRejected, InfraError.
    """
    task = draft_task(change)
    tests = Tests(tuple(task.hidden["tests"]), tuple(task.hidden["command"]))

    async def run(files: Mapping[str, bytes]) -> RunReport:
        return await run_tests(tests, files, machine(task, bench.pool, bench.grader.fit), bench.timeout_s)

    later = on_a_later_date(tests, task, bench.pool, bench.grader.fit, bench.timeout_s)
    proof = await prove_fail_to_pass(
        graded_files(task, nop(task)), graded_files(task, reference_files(task)), run, run_later=later, xfail=xfail
    )
    task = _with_proof(task, proof, len(change.others))
    await _require_other_solutions_pass(task, change.others, bench)
    await require_sound(task, bench)
    return task


def draft_task(change: RepositoryChange) -> Task:
    """The task before any test ran. Raises CandidateRejected for a change that no test can show."""
    changed = {path: text for path, text in change.after.items() if change.before.get(path) != text}
    removed = [path for path in change.before if path not in change.after]
    solution = {path: text for path, text in changed.items() if not is_protected(path)}
    deleted = [path for path in removed if not is_protected(path)]
    if not solution and not deleted:
        raise CandidateRejected("it changes tests and settings alone: there is nothing for an agent to do")
    if not any(is_test(path) for path in changed):
        raise CandidateRejected("it adds or changes no test: nothing shows whether the request is fulfilled")
    tests = sorted(path for path in change.after if PYTEST_FILE.search(path)) if change.tests is None else change.tests
    if not change.command and not tests:
        raise CandidateRejected("it has no Python tests: give --test-command to run its tests")
    hidden = {
        "files": {path: text for path, text in changed.items() if is_protected(path)},
        "removed": [path for path in removed if is_protected(path)],
        "tests": list(tests),
        "command": list(change.command),
    }
    visible = visible_command(Tests(tuple(tests), change.command)) if change.visible is None else change.visible
    return Task(
        id=change.id,
        category=change.category,
        level=change.level,
        instruction=change.instruction,
        files=dict(change.before),
        test_command=visible,
        grader=NAME,
        hidden=hidden,
        solution=solution,
        split="heldout",
        metadata={**change.metadata, "removed": deleted},
    )


async def require_sound(task: Task, bench: GradingContext, cheats: Mapping[str, Cheat] | None = None) -> None:
    """Checks the task with `cheats`, by default all that fit it. Raises CandidateRejected with the complaint."""
    chosen = cheats_for(task) if cheats is None else cheats
    result = await check(task, bench.pool, grade=bench.grader.grade, cheats=chosen, as_graded=graded_files)
    if not result.sound:
        raise CandidateRejected(f"not sound: {result.complaint()}")


def _with_proof(task: Task, found: FailToPassProof, others: int) -> Task:
    proof = {
        "fail_to_pass": list(found.fail_to_pass),
        "pass_to_pass": list(found.pass_to_pass),
        "seconds": found.seconds,
        **({XFAILED: list(found.xfailed)} if found.xfailed else {}),
    }
    facts = {"flaky": list(found.flaky), "solutions": 1 + others, "dates": found.dates}
    return replace(task, hidden={**task.hidden, **proof}, metadata={**task.metadata, **facts})


async def _require_other_solutions_pass(task: Task, others: Sequence[Mapping[str, str]], bench: GradingContext) -> None:
    """Rejects a task whose tests fail another solution of the same request: they ask for more than the request."""
    for number, files in enumerate(others, 1):
        verdict = await bench.grader.grade(task, {path: text.encode() for path, text in files.items()}, bench.pool)
        if not verdict.passed:
            raise CandidateRejected(
                f"its tests refuse another solution of the same request (number {number}): {verdict.reason}"
            )
