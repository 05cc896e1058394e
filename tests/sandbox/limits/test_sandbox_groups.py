"""One sandbox' control group: what is written into it, what it tells, that it goes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etude.sandbox.errors import CapacityExhausted
from etude.sandbox.limits import kernel, steps
from etude.sandbox.limits.group import ControlGroup
from etude.sandbox.limits.groups import ControlGroups
from etude.sandbox.spec import SandboxSpec


@pytest.fixture
def turns() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.fixture
def real() -> Iterator[ControlGroups]:
    found = ControlGroups.find()
    if not found.available:
        pytest.skip(found.limits)
    yield found
    found.close()


def test_swap_is_optional_and_nothing_else_is(tmp_path: Path) -> None:
    part = steps.GroupFolder(tmp_path, (("memory.max", "1"), ("memory.swap.max", "0")))
    (tmp_path / "memory.max").touch()
    steps.bound(tmp_path, part)
    assert (tmp_path / "memory.max").read_text() == "1"
    (tmp_path / "memory.max").unlink()
    with pytest.raises(FileNotFoundError):
        steps.bound(tmp_path, part)


def test_a_kill_for_memory_is_reported_once(tmp_path: Path, turns: ThreadPoolExecutor) -> None:
    group = ControlGroup("one", (steps.GroupFolder(tmp_path, ()),), "memory.events", turns)
    turns.submit(lambda: None).result()
    assert not group.ran_out_of_memory()
    events = group.folders[0] / "memory.events"
    events.write_text("low 0\noom 1\noom_kill 2\n")
    assert [group.ran_out_of_memory(), group.ran_out_of_memory()] == [True, False]


async def test_a_group_that_can_not_be_made_is_a_typed_error(tmp_path: Path, turns: ThreadPoolExecutor) -> None:
    group = ControlGroup("one", (steps.GroupFolder(tmp_path / "absent", ()),), "memory.events", turns)
    with subprocess.Popen(["sleep", "1000"]) as process:
        group.enter(_pidfd(process))
        with pytest.raises(CapacityExhausted, match="control group one"):
            await group.require_entered()
        process.kill()
    await group.remove()


async def test_a_group_that_stays_busy_is_left_to_the_end_without_spinning(
    tmp_path: Path, turns: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[Path] = []
    monkeypatch.setattr(kernel, "remove", lambda folder: bool(attempts.append(folder)))
    monkeypatch.setattr("etude.sandbox.limits.group._REMOVAL_PAUSES_S", (0.001, 0.001))
    removed: list[bool] = []
    group = ControlGroup("one", (steps.GroupFolder(tmp_path, ()),), "memory.events", turns)
    group.on_removal = lambda: removed.append(True)
    await group.remove()
    assert len(attempts) == 3 and removed == []


async def test_the_kernel_holds_what_was_written_and_the_group_goes_with_its_process(real: ControlGroups) -> None:
    spec = SandboxSpec(memory_mb=100, disk_mb=10, pids=8, cpus=0.5 if real.cpus else None)
    group = real.make(spec)
    with subprocess.Popen(["sleep", "1000"]) as process:
        group.enter(_pidfd(process))
        await group.require_entered()
        texts = {file.name: file.read_text() for folder in group.folders for file in _readable(folder)}
        assert str(process.pid) in texts["cgroup.procs"] and texts["pids.max"].strip() == "18"
        memory = texts.get("memory.max") or texts["memory.limit_in_bytes"]
        assert int(memory) == (100 + 20 + 64) << 20
        if real.cpus:
            assert "50000" in (texts.get("cpu.max") or texts["cpu.cfs_quota_us"])
        removal = asyncio.create_task(group.remove())
        await asyncio.sleep(0.01)
        assert not removal.done()
        process.kill()
        process.wait()
        await removal
    assert not any(folder.exists() for folder in group.folders)
    await group.remove()


def _pidfd(process: subprocess.Popen[bytes]) -> int:
    return os.pidfd_open(process.pid)


def _readable(folder: Path) -> list[Path]:
    names = ("cgroup.procs", "pids.max", "memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us")
    return [folder / name for name in names if (folder / name).exists()]
