"""Every cheat scores 0 on tasks of real runners, and the honest solution 1 (promise 10)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from etude.sandbox.protocol import Machines, SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.audit import check
from etude.tasks.cheats.repository import SCRIPTED, TEMPTATIONS, cheats_for
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.graders.judged import BRIEF, graded_files
from etude.tasks.running.pin import PackagesUnavailable, default_cache
from etude.tasks.running.pytest_tools import with_pytest
from etude.tasks.task import Task, Verdict
from etude.tasks.validation.project import TaskDraft, prove_draft

PROMPTS: dict[str, str] = dict.fromkeys(("terse", "ambiguous", "full"), "tally is off by one")
GOOD = "def tally(items):\n    return len(items)\n\n\ndef same(left, right):\n    return left == right\n"
TESTS = (
    "import unittest\n\nfrom tally import same, tally\n\n\ndef test_two():\n    assert tally([1, 2]) == 2\n\n\n"
    "class T(unittest.TestCase):\n    def test_unit(self):\n        self.assertEqual(tally([]), 0)\n\n\ndef test_same():\n    assert same(1, 1)\n"
)
JS = "exports.tally = (items) => items.length;\n"
JS_TESTS = (
    "const test = require('node:test');\nconst assert = require('node:assert');\nconst { tally } = require('../tally.js');\n"
    "test('two', () => assert.strictEqual(tally([1, 2]), 2));\ntest('is a number', () => assert.ok(Number.isInteger(tally([]))));\n"
)


async def python_task(pool: SandboxPool) -> Task:
    try:
        with_pytest(SandboxSpec(), default_cache())
    except PackagesUnavailable as error:
        pytest.skip(str(error))
    base = {"tally.py": GOOD, "tests/test_tally.py": TESTS}
    bad = GOOD.replace("len(items)", "len(items) + 1")
    draft = TaskDraft("d/py", "debugging", "bug", PROMPTS, Environment("tally", "1"), base)
    return await prove_draft(
        TaskDraft(
            **{
                **vars(draft),
                "changed": {"tally.py": bad},
                "solution": {"tally.py": GOOD},
                "tests": ("tests/test_tally.py",),
            }
        ),
        pool,
    )


async def script_task(pool: SandboxPool) -> Task:
    if not (shutil.which("node") or "").startswith("/usr/"):
        pytest.skip("node is not in this machine's system folders")
    plan = TestPlan("node", ("node", "--test", "{files}"), ("test/tally.test.js",))
    environment = Environment("tally", "1", "javascript", tests=plan)
    base = {"tally.js": JS, "test/tally.test.js": JS_TESTS}
    draft = TaskDraft("d/js", "debugging", "bug", PROMPTS, environment, base)
    changed = {"tally.js": JS.replace("length", "length + 1")}
    return await prove_draft(
        TaskDraft(
            **{**vars(draft), "changed": changed, "solution": {"tally.js": JS}, "tests": ("test/tally.test.js",)}
        ),
        pool,
    )


async def whole(task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
    """As in training: the tests run to their end, whatever they show on the way."""
    hidden = {key: value for key, value in task.hidden.items() if key != BRIEF}
    return await CommandsGrader().grade(replace(task, hidden=hidden), files, pool)


@pytest.mark.parametrize(
    "grade", [pytest.param(whole, marks=pytest.mark.nightly), CommandsGrader().grade], ids=["whole", "brief"]
)
async def test_every_python_cheat_scores_0(pool: SandboxPool, grade: Callable[..., Awaitable[Verdict]]):
    task = await python_task(pool)
    assert cheats_for(task) is TEMPTATIONS
    found = await check(task, pool, grade=grade, cheats=TEMPTATIONS, as_graded=graded_files)
    assert found.reference == 1.0 and found.nop == 0.0
    assert found.cheats == dict.fromkeys(TEMPTATIONS, 0.0)


async def test_every_javascript_cheat_scores_0(pool: SandboxPool):
    task = await script_task(pool)
    assert cheats_for(task) is SCRIPTED
    found = await check(task, pool, grade=CommandsGrader().grade, cheats=SCRIPTED, as_graded=graded_files)
    assert found.reference == 1.0 and found.nop == 0.0
    assert found.cheats == dict.fromkeys(SCRIPTED, 0.0)


async def test_work_that_is_done_scores_1_next_to_planted_files(pool: SandboxPool):
    """A false reject: what an agent leaves next to its work is no reason to refuse the work."""
    task = await python_task(pool)
    litter = {
        "notes.md": b"done",
        "scratch.py": b"print(1)\n",
        "__pycache__/tally.cpython-311.pyc": b"\0",
        "tests/test_mine.py": b"def test(): pass\n",
    }
    files = {"tally.py": GOOD.encode(), "tests/test_tally.py": TESTS.encode(), **litter}
    verdicts = await asyncio.gather(*(CommandsGrader().grade(task, files, pool) for _ in range(2)))
    assert all(verdict.passed for verdict in verdicts), verdicts
