"""Nothing that an agent leaves raises out of an attempt: it is the model's error with a reason, or a fault of that attempt (promise 8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import FatalStageError
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message, ToolCall
from etude.rollout.attempt import AttemptSetup, attempt
from etude.rollout.retry import InfraFault
from etude.rollout.settings import AttemptSettings
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.registry import GRADERS
from etude.tasks.task import Task, Verdict

GOOD = "on: push\njobs:\n  a:\n    runs-on: x\n    steps: [{run: make test}]\n"
TASK = Task(
    id="ci",
    category="devops",
    level="workflow",
    instruction="repair ci.yml",
    files={"ci.yml": "on: push\n", "Makefile": "test:\n\ttest -e good\n", "good": ""},
    test_command=("make", "test"),
    grader="devops",
    hidden={"scenarios": [{"name": "runs", "steps": [{"workflow": "ci.yml"}], "ok": True}], "seconds": 0.1},
    metadata={"editable": ["ci.yml"]},
)
HOSTILE = {
    "needs a number": GOOD.replace("runs-on: x\n", "runs-on: x\n    needs: 5\n"),
    "an impossible date": GOOD.replace("runs-on: x\n", "runs-on: x\n    name: 2024-13-45\n"),
    "five thousand digits": GOOD.replace("runs-on: x\n", f"runs-on: x\n    name: {'9' * 5000}\n"),
    "a product": GOOD.replace(
        "runs-on: x\n",
        f"runs-on: x\n    strategy: {{matrix: {{{', '.join(f'k{n}: {list(range(20))}' for n in range(8))}}}}}\n",
    ),
    "deep": "on: push\njobs: " + "[" * 20_000,
    "a command that can't be given": GOOD.replace("make test", '"a\\0b"'),
}


async def _attempted(text: str, graders: Any = GRADERS, **changes: Any) -> Any:
    pool = await open_pool(SandboxSettings())
    try:
        write = ToolCall("c1", "edit", {"path": "ci.yml", "old": "on: push\n", "new": text})
        script = [
            Message("assistant", calls=(write,)),
            Message("assistant", calls=(ToolCall("c2", "done", {"message": ""}),)),
        ]
        settings = AttemptSettings(attempts=2, first_delay_s=0.0)
        return await attempt(
            replace(TASK, **changes),
            AttemptSetup(ScriptedPolicy(script), pool, graders, HarnessSettings(), settings=settings),
        )
    finally:
        await pool.close()


async def test_a_right_workflow_solves_the_devops_task() -> None:
    found = await _attempted(GOOD)
    assert found.verdict.passed, found.verdict


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_workflow_is_a_model_error_of_its_attempt(name: str) -> None:
    found = await _attempted(HOSTILE[name])
    assert found.verdict.score == 0.0 and "ci.yml" in found.verdict.reason and found.tries == 1


class Raising:
    """Fails on what agents leave, and on the task's own files where `always`."""

    def __init__(self, error: Exception, always: bool = False) -> None:
        self.error, self.always = error, always

    async def grade(self, task: Task, files: dict[str, bytes], pool: Any) -> Verdict:
        if self.always or files["ci.yml"] != task.files["ci.yml"].encode():
            raise self.error
        return Verdict(0.0)


@pytest.mark.parametrize("error", [TypeError("'int' object is not iterable"), RecursionError("deep"), KeyError("zz")])
async def test_an_exception_of_a_grader_is_a_score_of_0_or_a_defective_task(error: Exception) -> None:
    found = await _attempted(GOOD, {"devops": Raising(error)})
    assert found.verdict.score == 0.0 and type(error).__name__ in found.verdict.reason
    with pytest.raises(InfraFault, match="fails on the task's own files"):
        await _attempted(GOOD, {"devops": Raising(error, always=True)})


async def test_an_unknown_grader_is_a_fault_of_that_attempt_and_names_those_there_are() -> None:
    with pytest.raises(InfraFault, match="no grader 'magic'; there are: commands"):
        await _attempted(GOOD, grader="magic")


async def test_what_nothing_foresaw_in_an_agents_work_is_a_fault_of_that_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*args: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("etude.rollout.attempt._run_agent", broken)
    with pytest.raises(
        InfraFault,
        match=r"ZeroDivisionError after 2 tries: ZeroDivisionError: division by zero \(test_rollout_hostile.py",
    ):
        await _attempted(GOOD)


async def test_what_lets_no_attempt_be_made_ends_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(*args: Any) -> Any:
        raise FatalStageError("the endpoint is gone")

    monkeypatch.setattr("etude.rollout.attempt._run_agent", gone)
    with pytest.raises(FatalStageError, match="^the endpoint is gone$"):
        await _attempted(GOOD)
