"""A change over an installed project becomes a proved task: the pinned pytest and a snapshot, real sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import DEPS, Environment, TestPlan
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.registry import grade
from etude.tasks.running.pin import PackagesUnavailable, default_cache
from etude.tasks.running.pytest_tools import with_pytest
from etude.tasks.solved import reference_files
from etude.tasks.validation.project import TaskDraft, prove_draft, task_of

GOOD = "from helper import one\n\n\ndef tally(items):\n    return len(items) * one()\n"
BAD = GOOD.replace("len(items)", "len(items) + 1")
TESTS = "import tally\n\n\ndef test_two():\n    assert tally.tally([1, 2]) == 2\n\n\ndef test_type():\n    assert isinstance(tally.tally([]), int)\n"
BASE = {"tally.py": GOOD, "tests/test_tally.py": TESTS, "tests/test_other.py": "def test_other():\n    pass\n"}
PROMPTS = {
    "terse": "tally counts one too many",
    "ambiguous": "taly is off",
    "full": "tally([1, 2]) gives 3, it must give 2.",
}


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    try:
        with_pytest(SandboxSpec(), default_cache())
    except PackagesUnavailable as error:
        pytest.skip(str(error))
    pool = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield pool
    await pool.close()


async def installed(pool: SandboxPool) -> Environment:
    box = await pool.create(SandboxSpec(files={path: text.encode() for path, text in BASE.items()}))
    await box.run(["mkdir", "-p", f"{DEPS}/site"])
    await box.write(f"{DEPS}/site/helper.py", b"def one():\n    return 1\n")
    await box.snapshot("tally-1")
    await box.kill()
    return Environment(
        "tally", "1", snapshot="tally-1", env={"PYTHONPATH": f"{DEPS}/site"}, tests=TestPlan(files=("tests",))
    )


def draft(environment: Environment, **other: object) -> TaskDraft:
    given = {"changed": {"tally.py": BAD}, "solution": {"tally.py": GOOD}, "tests": ("tests/test_tally.py",)}
    return TaskDraft("d/1", "debugging", "bug", PROMPTS, environment, BASE, **{**given, **other})  # type: ignore[arg-type]


async def test_a_bug_over_a_snapshot_becomes_a_task_that_its_grader_agrees_with(shop: SandboxPool):
    environment = await installed(shop)
    task = await prove_draft(draft(environment), shop)
    assert task.hidden["fail_to_pass"] == ["tests.test_tally::test_two"]
    assert task.hidden["pass_to_pass"] == ["tests.test_tally::test_type"]
    assert task.metadata["overlay"] == {"changed": ["tally.py"], "added": [], "removed": []}
    assert task.metadata["changed"] == {"lines": 2, "files": 1}
    assert task.instruction == PROMPTS["full"] and task.files["tally.py"] == BAD
    assert (await grade(task, {path: text.encode() for path, text in BASE.items()}, shop)).passed
    assert not (await grade(task, {path: text.encode() for path, text in task.files.items()}, shop)).passed


async def test_a_file_that_only_the_task_has_may_be_gone_afterwards(shop: SandboxPool):
    environment = await installed(shop)
    task = task_of(draft(environment, changed={"tally.py": BAD, "extra.py": "x = 1\n"}, gone=("extra.py",)))
    assert "extra.py" in task.files
    box = await open_workspace(task, shop, SandboxSpec(), files=reference_files(task))
    assert "extra.py" not in await box.export()
    await box.kill()


async def test_a_change_that_no_test_shows_takes_one_run_where_the_baseline_is_known(shop: SandboxPool):
    environment = await installed(shop)
    known = frozenset(("tests.test_tally::test_two", "tests.test_tally::test_type"))
    same = GOOD.replace("items", "things")
    before = shop.stats().created
    with pytest.raises(CandidateRejected, match="no test that fails before"):
        await prove_draft(draft(environment, changed={"tally.py": same}), shop, known=known)
    assert shop.stats().created == before + 1


async def test_flaky_tests_wrecks_and_references_that_touch_tests_are_no_tasks(shop: SandboxPool):
    environment = await installed(shop)
    with pytest.raises(CandidateRejected, match="flaky"):
        await prove_draft(draft(environment), shop, flaky=frozenset(("tests.test_tally::test_two",)))
    known = frozenset(("tests.test_tally::test_two", "tests.test_tally::test_type"))
    with pytest.raises(CandidateRejected, match="too many for a task"):
        await prove_draft(draft(environment, changed={"tally.py": "raise OSError\n"}), shop, known=known, most=1)
    with pytest.raises(CandidateRejected, match="decides how tests run"):
        await prove_draft(draft(environment, solution={"conftest.py": ""}), shop)
    with pytest.raises(CandidateRejected, match="style terse"):
        await prove_draft(TaskDraft("d", "c", "l", {"full": "x", "ambiguous": "y"}, environment, BASE), shop)
