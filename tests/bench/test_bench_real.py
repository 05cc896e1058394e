"""Real-package bugs: the release passes its tests, the bug fails them, and planted files never reach the grader."""

import subprocess
from pathlib import Path

import pytest

from etude.bench.real import wheels
from etude.bench.real.grader import PytestGrader
from etude.bench.real.source import RealPackages
from etude.bench.real.wheels import PackagesUnavailable, Pin, default_cache, unpacked
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings


def test_an_unreachable_index_is_said_and_leaves_no_half_unpacked_package(tmp_path: Path, monkeypatch):
    refused = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found for toolz==1.2.0\n")
    monkeypatch.setattr(wheels.subprocess, "run", lambda *args, **options: refused)
    with pytest.raises(PackagesUnavailable, match="No matching distribution"):
        unpacked(Pin("toolz", "1.2.0", "00"), tmp_path)
    assert list((tmp_path / "wheels").iterdir()) == []


def test_a_wheel_with_another_digest_is_refused(tmp_path: Path, monkeypatch):
    def download(command, **options):
        (Path(command[command.index("--dest") + 1]) / "toolz-1.2.0-py3-none-any.whl").write_bytes(b"other bytes")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(wheels.subprocess, "run", download)
    with pytest.raises(PackagesUnavailable, match="pinned is 00"):
        unpacked(Pin("toolz", "1.2.0", "00"), tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_every_bug_fails_the_packages_own_tests_and_its_fix_passes_them():
    cache = default_cache()
    source = RealPackages(cache)
    try:
        tasks = [source.task(task_id) for task_id in source.ids("heldout")]
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))
    grader, pool = PytestGrader(cache), await open_pool(SandboxSettings())
    try:
        for task in tasks:
            broken = {path: text.encode() for path, text in task.files.items()}
            fixed = broken | {path: text.encode() for path, text in task.solution.items()}
            planted = dict.fromkeys(
                ("conftest.py", "sitecustomize.py", f"{task.metadata['package']}/tests/conftest.py")
            )
            cheat = broken | {path: b"import os\nos._exit(0)\n" for path in planted}
            assert (await grader.grade(task, broken, pool)).score == 0, task.id
            assert (await grader.grade(task, fixed, pool)).score == 1, task.id
            assert (await grader.grade(task, cheat, pool)).score == 0, task.id
    finally:
        await pool.close()
