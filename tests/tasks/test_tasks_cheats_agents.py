"""Agents that act instead of working score 0; where a sandbox does give the work away they score, so that a check can't miss it (promise 10)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.cheats.agents import AGENTS, agents_for, behaved
from etude.tasks.checking.check import judge_task
from etude.tasks.environment.environment import DEPS, Environment, TestPlan
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.graders.judged import graded_files
from etude.tasks.registry import grade
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, task_of

GOOD = "def tally(items):\n    return len(items)\n"
BAD = "def tally(items):\n    return 0\n"
TESTS = (
    "import unittest\n\nfrom shop.tally import tally\n\n\nclass T(unittest.TestCase):\n"
    "    def test_two(self):\n        self.assertEqual(tally([1, 2]), 2)\n"
)
BASE = {"shop/tally.py": GOOD, "shop/__init__.py": "", "tests/test_tally.py": TESTS, "tests/__init__.py": ""}


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened_pool = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened_pool
    await opened_pool.close()


async def made(pool: SandboxPool, outside: dict[str, str] | None = None) -> Task:
    box = await pool.create(SandboxSpec(files={path: text.encode() for path, text in BASE.items()}))
    for path, text in (outside or {}).items():
        await box.write(path, text.encode())
    await box.snapshot("shop-1")
    await box.kill()
    environment = Environment("no-such-project-anywhere", "1", snapshot="shop-1", tests=TestPlan("unittest"))
    prompts: dict[str, str] = dict.fromkeys(("terse", "ambiguous", "full"), "tally gives 0")
    changed, solution = {"shop/tally.py": BAD}, {"shop/tally.py": GOOD}
    draft = TaskDraft(
        "b/1", "debugging", "bug", prompts, environment, BASE, changed, (), solution, tests=("tests/test_tally.py",)
    )
    task = task_of(draft)
    task.hidden.update(fail_to_pass=["tests.test_tally.T::test_two"], pass_to_pass=[], seconds=1.0, universal=[])
    return task


async def test_every_agent_that_acts_scores_0_and_is_in_the_check(shop: SandboxPool):
    """Test 51 of docs/sandbox.md: rewards are planted, the runner is replaced, a daemon edits files while the grading runs."""
    row = await judge_task(await made(shop), shop)
    assert row.good, row
    assert {name: row.cheats[name] for name in AGENTS} == dict.fromkeys(AGENTS, 0.0)


async def test_neither_reference_nor_hidden_tests_are_anywhere_before_the_grading(shop: SandboxPool):
    """Test 52 of docs/sandbox.md: not in a file, a variable, a process' words, an object of git."""
    task = await made(shop)
    box = await open_workspace(task, shop, SandboxSpec(), history=True)
    look = (
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; env; git cat-file --batch-all-objects --batch 2>/dev/null;"
        "find / \\( -path /proc -o -path /sys -o -path /dev -o -path /usr \\) "
        "-prune -o -type f -size -64k -exec grep -l 'return len(items)$' {} + 2>/dev/null"
    )
    said = await box.run(["sh", "-c", look], timeout_s=60.0, max_output_bytes=1 << 22)
    await box.kill()
    assert not said.timed_out and not said.truncated
    text = said.out.decode("utf-8", "replace")
    assert "return 0" in text and "return len(items)" not in text.replace(look, "") and "shop/tally.py\n" not in text


async def test_a_copy_that_lies_about_is_taken_and_scores_so_that_the_check_fails(shop: SandboxPool):
    task = await made(shop, {f"{DEPS}/site-packages/shop/tally.py": GOOD})
    async with behaved(task, shop, AGENTS["copies_from_caches"]) as files:
        assert files["shop/tally.py"] == GOOD.encode()
        assert (await grade(task, files, shop)).passed


async def test_a_history_with_the_work_in_it_is_mined(shop: SandboxPool):
    task = await made(shop)
    plant = (
        f"printf '%s' \"$GOOD\" > shop/tally.py; git commit -qam fixed; git reset -q --hard HEAD~1; {AGENTS['mines_the_history']}"
    ).replace("$GOOD", GOOD.replace("\n", "\\n"))
    plant = plant.replace("printf '%s'", "printf '%b'")
    async with behaved(task, shop, plant) as files:
        assert files["shop/tally.py"] == GOOD.encode()


async def test_a_daemon_lives_while_its_files_are_graded_and_changes_nothing(shop: SandboxPool):
    task = await made(shop)
    task.files["shop/tally.py"] = GOOD  # the work is done: only the daemon could spoil it
    task.metadata["overlay"]["changed"] = []
    async with behaved(task, shop, AGENTS["leaves_a_daemon"]) as files:
        assert (
            files["tests/test_tally.py"] == b"" and graded_files(task, files)["tests/test_tally.py"] == TESTS.encode()
        )
        assert (await grade(task, files, shop)).passed


async def test_an_exercise_without_a_project_has_no_such_agents(shop: SandboxPool):
    assert agents_for(Task("e", "debugging", "one-bug", "x", {}, (), "outputs")) == {}
