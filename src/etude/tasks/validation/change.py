"""From two states of a repository to a task: what the agent sees, what is the reference, what is hidden, and the proof of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etude.sandbox.protocol import Machines
from etude.tasks.audit import check
from etude.tasks.cheats.exercise import nop
from etude.tasks.cheats.repository import Cheat, cheats_for
from etude.tasks.fail_to_pass import CandidateRejected, FailToPassProof, prove_fail_to_pass
from etude.tasks.graders.commands import NAME, CommandsGrader, machine
from etude.tasks.graders.judged import XFAILED, graded_files
from etude.tasks.protected import is_protected, is_test
from etude.tasks.running.testrun import Ran, Tests, run_tests, visible_command
from etude.tasks.solved import solved
from etude.tasks.task import Task
from etude.tasks.validation.later_date import on_a_later_date

# What pytest collects by itself (python_files).
PYTEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")


@dataclass(frozen=True)
class Change:
    """A task to be. `before` and `after` are whole trees; `others` are further solutions of the same request, whole trees too."""

    id: str
    category: str
    level: str
    instruction: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    others: Sequence[Mapping[str, str]] = ()
    command: tuple[str, ...] = ()
    visible: tuple[str, ...] | None = None  # what the agent's test tool runs; None: told by the command
    tests: tuple[str, ...] | None = None  # the test files that are run; None: all that pytest would collect
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """Where changes are proved."""

    pool: Machines
    grader: CommandsGrader
    timeout_s: float


async def proved(change: Change, bench: Bench, *, xfail: bool = False) -> Task:
    """The task, sound: reference and other solutions 1, nothing and every cheat 0. Raises CandidateRejected, InfraError."""
    task = drafted(change)
    tests = Tests(tuple(task.hidden["tests"]), tuple(task.hidden["command"]))

    async def run(files: Mapping[str, bytes]) -> Ran:
        return await run_tests(tests, files, machine(task, bench.pool, bench.grader.fit), bench.timeout_s)

    later = on_a_later_date(tests, task, bench.pool, bench.grader.fit, bench.timeout_s)
    found = await prove_fail_to_pass(
        graded_files(task, nop(task)), graded_files(task, solved(task)), run, run_later=later, xfail=xfail
    )
    task = _with(task, found, len(change.others))
    await _agree(task, change.others, bench)
    await require_sound(task, bench)
    return task


def drafted(change: Change) -> Task:
    """The task before anything was run. Raises CandidateRejected for a change that no test can show."""
    changed = {path: text for path, text in change.after.items() if change.before.get(path) != text}
    removed = [path for path in change.before if path not in change.after]
    solution = {path: text for path, text in changed.items() if not is_protected(path)}
    gone = [path for path in removed if not is_protected(path)]
    if not solution and not gone:
        raise CandidateRejected("it changes tests and settings alone: there is nothing for an agent to do")
    if not any(is_test(path) for path in changed):
        raise CandidateRejected("it adds or changes no test: nothing shows whether the request is fulfilled")
    tests = sorted(path for path in change.after if PYTEST_FILE.search(path)) if change.tests is None else change.tests
    if not change.command and not tests:
        raise CandidateRejected("it has no Python tests: say how to run its own with --test-command")
    hidden = {
        "files": {path: text for path, text in changed.items() if is_protected(path)},
        "removed": [path for path in removed if is_protected(path)],
        "tests": list(tests),
        "command": list(change.command),
    }
    shown = visible_command(Tests(tuple(tests), change.command)) if change.visible is None else change.visible
    return Task(
        id=change.id,
        category=change.category,
        level=change.level,
        instruction=change.instruction,
        files=dict(change.before),
        test_command=shown,
        grader=NAME,
        hidden=hidden,
        solution=solution,
        split="heldout",
        metadata={**change.metadata, "removed": gone},
    )


async def require_sound(task: Task, bench: Bench, cheats: Mapping[str, Cheat] | None = None) -> None:
    """By all cheats that fit the task, unless told otherwise. Raises CandidateRejected with the complaint."""
    tried = cheats_for(task) if cheats is None else cheats
    found = await check(task, bench.pool, grade=bench.grader.grade, cheats=tried, as_graded=graded_files)
    if not found.sound:
        raise CandidateRejected(f"not sound: {found.complaint()}")


def _with(task: Task, found: FailToPassProof, others: int) -> Task:
    proof = {
        "fail_to_pass": list(found.fail_to_pass),
        "pass_to_pass": list(found.pass_to_pass),
        "seconds": found.seconds,
        **({XFAILED: list(found.xfailed)} if found.xfailed else {}),
    }
    facts = {"flaky": list(found.flaky), "solutions": 1 + others, "dates": found.dates}
    return replace(task, hidden={**task.hidden, **proof}, metadata={**task.metadata, **facts})


async def _agree(task: Task, others: Sequence[Mapping[str, str]], bench: Bench) -> None:
    """Tests that refuse another solution of the same request ask for more than was asked."""
    for number, files in enumerate(others, 1):
        verdict = await bench.grader.grade(task, {path: text.encode() for path, text in files.items()}, bench.pool)
        if not verdict.passed:
            raise CandidateRejected(
                f"its tests refuse another solution of the same request (number {number}): {verdict.reason}"
            )
