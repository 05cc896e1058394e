"""Control groups on a copy of the kernel's files: what is claimed, written and refused. A delegated cgroup v2 itself needs a machine that
has one; there `test_limits_by_the_kernel` runs too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.sandbox.limits.groups import ControlGroups, Group, _limit
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec


def _tree(root: Path, controllers: str = "cpu memory pids") -> tuple[Path, Path, Path]:
    """(mountinfo, own cgroup, own folder) of a process in /user.slice/session."""
    mounted = root / "cgroup"
    own = mounted / "user.slice" / "session"
    own.mkdir(parents=True)
    for folder in (mounted, own.parent, own):
        (folder / "cgroup.controllers").write_text(controllers + "\n")
        (folder / "cgroup.subtree_control").write_text("")
    mounts, cgroup = root / "mountinfo", root / "cgroup.txt"
    mounts.write_text(f"22 1 0:5 / /proc rw - proc proc rw\n30 1 0:26 / {mounted} rw,nosuid - cgroup2 cgroup2 rw\n")
    cgroup.write_text("4:memory:/old\n0::/user.slice/session\n")
    return mounts, cgroup, own


def test_no_cgroup_v2_is_told_apart_from_one_that_is_not_ours(tmp_path: Path) -> None:
    mounts, cgroup, own = _tree(tmp_path, controllers="hugetlb")
    refused = ControlGroups.find(mounts, cgroup)
    assert (
        not refused.available and "controller memory is absent" in refused.limits and "rlimits+watch" in refused.limits
    )
    assert [path.name for path in own.iterdir() if path.is_dir()] == []
    mounts.write_text("22 1 0:5 / /proc rw - proc proc rw\n")
    assert "no cgroup v2 is mounted" in ControlGroups.find(mounts, cgroup).limits
    assert "no cgroup v2 is mounted" in ControlGroups.find(tmp_path / "absent", cgroup).limits


def test_a_folder_that_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    mounts, cgroup, own = _tree(tmp_path)
    for folder in (own, own.parent):  # as "no internal processes" does: the write fails
        (folder / "cgroup.subtree_control").unlink()
        (folder / "cgroup.subtree_control").mkdir()
    refused = ControlGroups.find(mounts, cgroup)
    assert not refused.available and "not delegated" in refused.limits
    assert not list(tmp_path.rglob("etude-*"))


def test_limits_are_the_spec_s_with_room_for_files_and_runner(tmp_path: Path) -> None:
    (tmp_path / "memory.swap.max").write_text("max")
    _limit(tmp_path, SandboxSpec(memory_mb=100, disk_mb=10, pids=8))
    assert int((tmp_path / "memory.max").read_text()) == (100 + 20 + 64) << 20
    assert ((tmp_path / "pids.max").read_text(), (tmp_path / "memory.swap.max").read_text()) == ("18", "0")


def test_a_kill_for_memory_is_told_once(tmp_path: Path) -> None:
    group = Group(tmp_path)
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 0\noom_kill 0\n")
    assert not group.ran_out_of_memory()
    events.write_text("low 0\noom 1\noom_kill 2\n")
    assert [group.ran_out_of_memory(), group.ran_out_of_memory()] == [True, False]


async def test_limits_by_the_kernel() -> None:
    groups = ControlGroups.find()
    if not groups.available:
        pytest.skip(groups.limits)
    groups.close()
    pool = await open_pool(SandboxSettings())
    box = await pool.create(SandboxSpec(memory_mb=32, disk_mb=1))
    assert box.group is not None  # type: ignore[attr-defined]
    folder = box.group._folder  # type: ignore[attr-defined]
    assert len((folder / "cgroup.procs").read_text().split()) == 1
    hog = "import os\nfor _ in range(3):\n if os.fork() == 0: x = b'x' * (30 << 20); os._exit(0)\nos.wait()"
    assert (await box.run(["python", "-c", hog])).rc in (0, 137)
    await box.kill()
    assert not os.path.exists(folder)
    await pool.close()
