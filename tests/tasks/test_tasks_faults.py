"""The table of faults, a test a row: what is the policy's is scored 0, what is ours is never scored (promise 8)."""

from __future__ import annotations

from typing import Any

import pytest

from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import SandboxPool
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.faults import ROWS, TABLE, fault_of, fault_reason
from etude.tasks.graders import judged
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.running.report import TestRun
from etude.tasks.running.testrun import RunReport
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, task_of

NONE: frozenset[str] = frozenset()


def run(rc: int = 1, passed: frozenset[str] = NONE, **other: Any) -> TestRun:
    return TestRun(passed, NONE, rc, 2.0, **other)


def bad(objection: str, rc: int = 1, **other: Any) -> RunReport:
    return RunReport(run(rc), "", False, objection=objection, **other)


SIGNS = {
    "hangs": RunReport(run(-9, timed_out=True), "", False, objection="it hangs"),
    "refused": bad("the files were refused: 99 MB are over the limit"),
    "memory": bad("killed", silent=True, oom=True),
    "silenced": bad("killed", silent=True, signal=9),
    "forged": bad("the results were written by somebody else than the runner"),
    "tampered": bad("the runner was tampered with: _pytest.x"),
    "canary": bad("1 of 4 tests that must fail were not reported as failed"),
    "pytest 2": bad("pytest ended with status 2", 2),
    "pytest 3": bad("pytest ended with status 3", 3),
    "pytest 4": bad("pytest ended with status 4", 4),
    "pytest 5": bad("pytest ended with status 5", 5),
    "pytest >5": bad("pytest did not end as it does (status -11)", -11),
    "early end": bad("pytest did not end as it does (status 0)", 0),
    "no report": bad("JUnit report 1 does not parse: it ends early"),
    "unbuilt": RunReport(run(1), "cc: error"),
}
BEYOND = {"reward": "graders of scripts", "machine": "raised", "environment": "raised"}


@pytest.mark.parametrize("name", SIGNS)
def test_a_run_is_known_by_its_sign(name: str):
    row = fault_of(SIGNS[name])
    assert row is not None and row is ROWS[name] and fault_reason(row, SIGNS[name])


def test_every_row_has_a_test():
    assert {row.name for row in TABLE} == set(SIGNS) | set(BEYOND)
    assert fault_of(RunReport(run(1, frozenset(("t",))), "")) is None


def shop() -> Task:
    environment = Environment("a", "1", tests=TestPlan("unittest"))
    prompts: dict[str, str] = dict.fromkeys(("terse", "ambiguous", "full"), "x")
    base = {
        "a.py": "X = 2\n",
        "test_a.py": "import unittest, a\n\n\nclass T(unittest.TestCase):\n    def test_x(self):\n        self.assertEqual(a.X, 1)\n",
    }
    task = task_of(
        TaskDraft("a", "c", "l", prompts, environment, base, solution={"a.py": "X = 1\n"}, tests=("test_a.py",))
    )
    task.hidden.update(fail_to_pass=["test_a.T::test_x"], pass_to_pass=[], seconds=1.0)
    return task


KILL = b"import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"


async def test_code_that_kills_what_runs_it_scores_0_because_the_reference_runs(pool: SandboxPool):
    verdict = await CommandsGrader().grade(shop(), {"a.py": KILL}, pool)
    assert verdict.score == 0 and verdict.reason == ROWS["silenced"].verdict


async def test_an_attempt_that_was_killed_from_outside_is_judged_by_a_second_run(pool: SandboxPool):
    """As the kernel does where memory is short, and the reference runs again a moment later."""

    class Struck(CommandsGrader):
        runs = 0

        async def _run(self, task: Task, files: dict[str, bytes], pool: SandboxPool) -> RunReport:
            self.runs += 1
            return SIGNS["silenced"] if self.runs == 1 else await super()._run(task, files, pool)

    struck = Struck()
    verdict = await struck.grade(shop(), {"a.py": b"X = 1\n"}, pool)
    assert verdict.score == 1 and struck.runs == 3


async def test_where_the_reference_dies_too_the_machine_is_at_fault(pool: SandboxPool):
    task = shop()
    task.solution["a.py"] = KILL.decode()
    with pytest.raises(InfraError, match="the reference does not pass here either"):
        await CommandsGrader().grade(task, {"a.py": KILL}, pool)


async def test_a_tree_that_does_not_build_and_one_that_hangs_are_named(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(judged, "FEWEST_S", 0.5)
    monkeypatch.setattr(judged, "TIMES", 0.0)
    hangs = await CommandsGrader().grade(shop(), {"a.py": b"while True:\n    pass\n"}, pool)
    assert hangs.score == 0 and hangs.reason.startswith("the tests took longer than")
    monkeypatch.setattr(judged, "FEWEST_S", 60.0)
    broken = await CommandsGrader().grade(shop(), {"a.py": b"((("}, pool)
    assert broken.score == 0 and broken.reason


async def test_a_snapshot_that_is_missing_is_never_a_score(pool: SandboxPool):
    task = shop()
    task.metadata["environment"]["snapshot"] = "no-such-snapshot"
    with pytest.raises(InfraError):
        await CommandsGrader().grade(task, {"a.py": b"X = 1\n"}, pool)
