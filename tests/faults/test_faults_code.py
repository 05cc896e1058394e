"""Hostile or broken code left by an agent: it costs the rollout its score, never an infra fault, and the next one is not harmed.

Whole attempts in real sandboxes: the agent edits, runs the tests, declares itself done; then a fresh sandbox grades (promise 8).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message, ToolCall
from etude.rollout.attempt import Attempt, AttemptSetup, attempt
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.registry import GRADERS
from etude.tasks.task import Task

HOSTILE = {
    "an endless loop": "while True:\n    pass\n",
    "a loop that catches everything": "while True:\n    try:\n        pass\n    except BaseException:\n        pass\n",
    "memory without end": "x = [0]\nwhile True:\n    x += x\n",
    "output without end": "while True:\n    print('y' * 10**6)\n",
    "processes without end": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    "an exit that says all is well": "import os\nos._exit(0)\n",
    "deafness to signals": "import signal\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError):\n        pass\nwhile True:\n    pass\n",
    "a full disk": "n = 0\nwhile True:\n    open(f'junk{n}', 'wb').write(b'x' * 10**6)\n    n += 1\n",
    "no Python": "\x00\x7fELF\ufffd\x01 )(",
}
# A rollout with looping code: the agent's test run and the grader's, a second or two each, and room for a busy machine.
LIMIT_S = 60


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings())
    yield opened
    await opened.close()


def call(number: int, name: str, **arguments: str) -> Message:
    return Message("assistant", calls=(ToolCall(f"c{number}", name, dict(arguments)),))


async def try_with(task: Task, pool: SandboxPool, path: str, old: str, new: str) -> Attempt:
    script = [call(0, "edit", path=path, old=old, new=new), call(1, "test"), call(2, "done", message="fixed")]
    harness = HarnessSettings(test_timeout_s=1.0, max_session_tokens=100_000)
    return await attempt(task, AttemptSetup(ScriptedPolicy(script), pool, GRADERS, harness))


@pytest.fixture
def task() -> Task:
    return ExerciseSource(ExerciseSettings()).task("one-bug/train/000003")


# Three seconds each, most of it waiting for time-outs: the others are nightly.
QUICK = ("an endless loop", "an exit that says all is well", "no Python")
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in HOSTILE]


@pytest.mark.parametrize("name", CASES)
async def test_code_that_misbehaves_scores_nothing_and_harms_no_one(pool: SandboxPool, task: Task, name: str) -> None:
    ((path, solved),) = task.solution.items()
    broken = task.files[path]
    began = time.monotonic()
    found = await try_with(task, pool, path, broken, HOSTILE[name] + solved)
    assert found.verdict.score == 0.0 and found.verdict.reason
    assert found.tries == 1 and found.rollout.info["end"] == "done" and found.rollout.counters["calls"] == 3
    assert found.rollout.counters["edits"] == 1, "the edit went in, so it is the code that is judged"
    assert time.monotonic() - began < LIMIT_S
    good = await try_with(task, pool, path, broken, solved)
    assert good.verdict.score == 1.0, good.verdict.reason
