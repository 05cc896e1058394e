"""Real-package bugs: the release passes its tests, the bug fails those it names, and no cheat passes."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.cheats.repository import TEMPTATIONS
from etude.tasks.real.catalogue import bugs
from etude.tasks.real.grader import PytestGrader
from etude.tasks.real.hiding import functions, hidden
from etude.tasks.real.source import RealPackages
from etude.tasks.running import pin
from etude.tasks.running.pin import PackagesUnavailable, Pin, default_cache, unpack_release
from etude.tasks.running.pytest_tools import with_pytest
from etude.tasks.running.report import CANARIES, TestRun, canaries, caught
from etude.tasks.task import Task


def test_an_unreachable_index_is_said_and_leaves_no_half_unpacked_package(tmp_path: Path, monkeypatch):
    said = (
        "WARNING: Retrying\nERROR: Could not find a version\nERROR: No matching distribution found for toolz==1.2.0\n"
    )
    refused = subprocess.CompletedProcess([], 1, "", said)
    monkeypatch.setattr(pin.subprocess, "run", lambda *args, **options: refused)
    with pytest.raises(PackagesUnavailable, match="toolz==1.2.0 could not be downloaded: No matching distribution"):
        unpack_release(Pin("toolz", "1.2.0", "00"), tmp_path)
    assert list((tmp_path / "packages").iterdir()) == []


def test_pip_is_shown_the_digest_and_its_refusal_is_one_line(tmp_path: Path, monkeypatch):
    asked: list[str] = []

    def download(command, **options):
        asked.append(Path(command[command.index("--requirement") + 1]).read_text())
        assert "--require-hashes" in command
        said = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    Expected sha256 00\n"
        return subprocess.CompletedProcess(command, 1, "", said)

    monkeypatch.setattr(pin.subprocess, "run", download)
    with pytest.raises(PackagesUnavailable, match="another SHA-256 than the pinned one"):
        unpack_release(Pin("toolz", "1.2.0", "00"), tmp_path)
    assert asked == ["toolz==1.2.0 --hash=sha256:00\n"]


def test_the_catalogue_holds_enough_bugs_each_reported_in_words_and_shown_by_a_test():
    found = bugs().values()
    packages = {bug.package.pin.name for bug in found}
    assert len(found) >= 24 and len(packages) >= 4
    for bug in found:
        assert bug.fails and bug.tests and bug.edits, bug.id
        assert 60 <= len(bug.instruction) <= 600 and all(edit.old != edit.new for edit in bug.edits), bug.id
    ids = RealPackages(Path("unused")).ids("heldout")
    assert sorted(ids) == sorted(bugs()) and {bugs()[i].package.pin.name for i in ids[: len(packages)]} == packages


def test_tests_that_show_a_bug_are_cut_out_wherever_they_are_written():
    mixin = "class Base:\n    def test_all(self):\n        pass\n\n    def test_more(self):\n        pass\n"
    own = "import x\n\n\n@mark\ndef test_one():\n    assert 1\n\n\nclass T(Base):\n    def test_only(self):\n        assert 2\n"
    tests = {"tests/__init__.py": mixin, "tests/test_a.py": own, "tests/data.txt": "no code"}
    fails = ["tests.test_a::test_one[a-1]", "tests.test_a.T::test_only", "tests.test_a.T::test_all"]
    shown = hidden(tests, fails)
    assert [name for _, name in functions(shown["tests/__init__.py"])] == ["Base.test_more"]
    assert functions(shown["tests/test_a.py"]) == [] and "class T(Base):\n    pass\n" in shown["tests/test_a.py"]
    with pytest.raises(ValueError, match="no test"):
        hidden(tests, ["tests.test_a::test_absent"])


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    pool = await open_pool(SandboxSettings())
    yield pool
    await pool.close()


def _as_bytes(files: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


async def _prove(task: Task, grader: PytestGrader, pool: SandboxPool) -> None:
    """Reference 1, nop 0 for the reason named; what the agent sees of the tests passes."""
    broken = _as_bytes(task.files)
    nop = await grader.grade(task, broken, pool)
    assert nop.score == 0 and nop.reason.startswith("the bug is still there"), (task.id, nop.reason)
    failed = {name for name, passed in nop.tests.items() if not passed} - set(bugs()[task.id].sometimes)
    assert failed == set(task.hidden["fails"]), task.id
    reference = await grader.grade(task, broken | _as_bytes(task.solution), pool)
    assert reference.score == 1, (task.id, reference.reason)
    spec = with_pytest(SandboxSpec(files=broken), default_cache())
    seen = await (await pool.create(spec)).run(list(task.test_command), timeout_s=120)
    assert seen.rc == 0, (task.id, seen.out[-500:])


async def _tempt(task: Task, grader: PytestGrader, pool: SandboxPool, *only: str) -> None:
    """Cheats 0. They touch no bug, so one task of a package represents all."""
    for name in only or TEMPTATIONS:
        assert (await grader.grade(task, TEMPTATIONS[name](task), pool)).score == 0, (task.id, name)


def _tasks(prefix: str) -> list[Task]:
    source = RealPackages(default_cache())
    try:
        return [source.task(task_id) for task_id in source.ids("heldout") if task_id.startswith(prefix)]
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(300)  # 5 s on a quiet core, behind a download the first time
async def test_a_bug_fails_the_tests_it_names_its_fix_passes_and_cheats_score_nothing(pool: SandboxPool):
    grader, task = PytestGrader(default_cache()), _tasks("mpmath")[0]
    await _prove(task, grader, pool)
    await _tempt(task, grader, pool, "tests_emptied", "runner_patched")


@pytest.mark.parametrize("spared", [None, 0, 7, 15])
def test_a_runner_that_lies_of_any_canary_is_caught(spared: int | None):
    """A false accept: one canary alone, and who patches pytest for moments got past it one time in some."""
    names = [f"tests.x::test_ab_{n}" for n in range(CANARIES)]
    failed = frozenset(name for number, name in enumerate(names) if number != spared)
    assert caught(TestRun(frozenset(), failed, 1), "test_ab") is (spared is None)
    first, last = canaries("test_ab")
    assert (first + last).count("def test_ab_") == CANARIES and "def test_ab_0(" in first and "def test_ab_15(" in last


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_a_runner_that_is_patched_for_moments_is_caught_every_time(pool: SandboxPool):
    task = next(task for task in _tasks("sqlparse-") if task.id == "sqlparse-between")
    await _tempt(task, PytestGrader(default_cache()), pool, *["patched_for_moments"] * 12)


@pytest.mark.nightly
def test_a_test_that_races_its_own_thread_counts_for_no_bug():
    """A false reject: more-itertools' test_exception asks a thread for its result that may not have ended, and fails on a busy machine."""
    for task in _tasks("more-itertools-"):
        assert "--deselect=tests/test_more.py::CallbackIterTests" in task.hidden["flags"]
        assert not any("CallbackIterTests" in name for name in task.hidden["fails"])


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("package", sorted({bug.package.pin.name for bug in bugs().values()}))
async def test_every_bug_is_sound_and_its_visible_tests_pass(package: str, pool: SandboxPool):
    grader, tasks = PytestGrader(default_cache()), _tasks(f"{package}-")
    await _tempt(tasks[0], grader, pool)
    for task in tasks:
        await _prove(task, grader, pool)
