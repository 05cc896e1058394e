"""Which step of the ladder is taken, on copies of the kernel's files and on this machine (Test 31 of docs/sandbox.md)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from etude.sandbox.errors import Unsupported
from etude.sandbox.limits import kernel, owner
from etude.sandbox.limits.groups import ControlGroups, sweep
from etude.sandbox.limits.hierarchy import mounted_hierarchies
from etude.sandbox.spec import SandboxSpec

V1_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"),
    "pids": ("pids.max",),
    "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"),
}
V2_FILES = {"memory": ("memory.max", "memory.swap.max", "memory.events"), "pids": ("pids.max",), "cpu": ("cpu.max",)}


class Machine:
    """A tree of groups as a kernel shows it: a folder that is made has its files at once, and is removed with them."""

    def __init__(self, root: Path, own: str = "/job") -> None:
        self.root, self.own = root, own
        self.v1: dict[Path, list[str]] = {}
        self.v2: Path | None = None
        self.mounts, self.groups = ["22 1 0:5 / /proc rw - proc proc rw"], list[str]()

    def mount_v1(self, controllers: str) -> None:
        top = self.root / controllers
        self.v1[top] = controllers.split(",")
        self.mounts.append(f"30 1 0:26 / {top} rw - cgroup cgroup rw,{controllers}")
        self.groups.append(f"{len(self.groups) + 1}:{controllers}:{self.own}")
        (top / self.own[1:]).mkdir(parents=True)

    def mount_v2(self, controllers: str) -> None:
        self.v2 = self.root / "unified"
        self.mounts.append(f"31 1 0:27 / {self.v2} rw - cgroup2 cgroup2 rw,nsdelegate")
        self.groups.append(f"0::{self.own}")
        own = self.v2 / self.own[1:]
        own.mkdir(parents=True)
        for folder in (self.v2, own):
            (folder / "cgroup.controllers").write_text(controllers + "\n")
            (folder / "cgroup.subtree_control").write_text("")

    def make(self, folder: Path) -> None:
        folder.mkdir()
        names = ["cgroup.procs"]
        for top, controllers in self.v1.items():
            if top in folder.parents:
                names += [name for one in controllers for name in V1_FILES.get(one, ())]
        if self.v2 is not None and self.v2 in folder.parents:
            on = (folder.parent / "cgroup.subtree_control").read_text().replace("+", "").split()
            (folder / "cgroup.controllers").write_text(" ".join(on))
            names += ["cgroup.subtree_control", *(name for one in on for name in V2_FILES[one])]
        for name in names:
            (folder / name).touch()

    def remove(self, folder: Path) -> bool:
        shutil.rmtree(folder)
        return True

    def find(self) -> ControlGroups:
        mounts, groups = self.root / "mountinfo", self.root / "cgroup"
        mounts.write_text("\n".join(self.mounts) + "\n")
        groups.write_text("".join(line + "\n" for line in self.groups))
        return ControlGroups.find(mounted_hierarchies(mounts, groups))

    def ours(self) -> list[str]:
        return [path.name for path in self.root.rglob("etude-*")]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(kernel, "make", made.make)
    monkeypatch.setattr(kernel, "remove", made.remove)
    return made


def test_pure_v2_is_the_first_step(machine: Machine) -> None:
    """Test 31 of docs/sandbox.md."""
    machine.mount_v2("cpu memory pids")
    found = machine.find()
    assert (found.available, found.cpus, found.limits) == (True, True, "cgroup v2+rlimits+watch")
    found.close()
    assert machine.ours() == []


def test_hybrid_takes_v1_where_v2_has_no_memory(machine: Machine) -> None:
    """Test 31 of docs/sandbox.md."""
    machine.mount_v2("hugetlb")
    for controllers in ("cpu,cpuacct", "memory", "pids", "freezer"):
        machine.mount_v1(controllers)
    found = machine.find()
    assert (found.available, found.cpus, found.limits) == (True, True, "cgroup v1+rlimits+watch")
    assert "controller memory is absent" in found.reason
    found.close()
    assert machine.ours() == []


def test_pure_v1_without_a_cpu_controller_refuses_a_demand_for_cpus_only(machine: Machine) -> None:
    """Test 31 of docs/sandbox.md."""
    machine.mount_v1("memory")
    machine.mount_v1("pids")
    found = machine.find()
    assert (found.available, found.cpus, found.limits) == (True, False, "cgroup v1+rlimits+watch")
    found.require(SandboxSpec())
    with pytest.raises(Unsupported, match=r"cpus=0\.5.*no cpu controller.*leave cpus out"):
        found.require(SandboxSpec(cpus=0.5))
    found.close()


def test_without_any_the_last_step_says_why(machine: Machine) -> None:
    """Test 31 of docs/sandbox.md."""
    found = machine.find()
    assert not found.available and found.limits == "rlimits+watch (no cgroup: none is mounted)"
    with pytest.raises(Unsupported, match=r"needs a control group \(found: rlimits"):
        found.require(SandboxSpec(cpus=1))
    assert mounted_hierarchies(machine.root / "absent", machine.root / "absent") == []


def test_a_v2_that_refuses_leaves_nothing_behind(machine: Machine) -> None:
    """As the rule of no internal processes does: switching controllers on fails."""
    machine.mount_v2("cpu memory pids")
    machine.own = ""
    for file in machine.root.rglob("cgroup.subtree_control"):
        file.unlink()
        file.mkdir()
    found = machine.find()
    assert not found.available and "not delegated" in found.limits and machine.ours() == []


def test_a_folder_above_that_hands_on_serves_where_the_own_one_is_full(machine: Machine) -> None:
    machine.own = "/user.slice/session"
    machine.mount_v2("cpu memory pids")
    assert machine.v2 is not None
    (machine.v2 / "user.slice/session/cgroup.subtree_control").unlink()
    above = machine.v2 / "user.slice"
    (above / "cgroup.controllers").write_text("memory pids")
    (above / "cgroup.subtree_control").write_text("memory pids")
    found = machine.find()
    assert found.available and not found.cpus
    assert [path.parent for path in machine.root.rglob("etude-*")] == [above]
    found.close()


def test_a_mount_that_shows_a_part_of_the_tree_without_ours_is_no_step(machine: Machine) -> None:
    machine.mount_v2("memory pids")
    machine.mounts[-1] = machine.mounts[-1].replace(" / ", " /elsewhere ")
    assert "none is mounted" in machine.find().limits


def test_groups_of_dead_owners_are_swept_and_those_of_the_living_stay(machine: Machine) -> None:
    machine.mount_v1("memory")
    own = machine.root / "memory" / "job"
    with subprocess.Popen(["sleep", "1000"]) as other:
        mine = owner.name()
        alive = mine.replace(
            f"-{os.getpid()}-", f"-{other.pid}-"
        )  # its start time is another one's: a number used again
        foreign = "etude-1-" + mine.split("-", 2)[2]  # another pid namespace
        for name in (mine, alive, foreign, "etude-live"):
            (own / name).mkdir()
        (own / alive / "sandbox-1").mkdir()
        assert [path.name for path in sweep(own)] == [alive] == [path.name for path in sweep(own)] + [alive]
        other.kill()
    assert sorted(path.name for path in own.iterdir()) == sorted((mine, foreign, "etude-live"))


def test_this_machine_has_a_step_that_is_found_by_doing() -> None:
    """Test 31 of docs/sandbox.md, on the real groups: none is left after the pool."""
    found = ControlGroups.find()
    if not found.available:
        assert found.reason and found.limits.startswith("rlimits+watch")
        pytest.skip(found.limits)
    assert found._step is not None
    pools = found._step.pools
    assert all(pool.is_dir() for pool in pools)
    found.close()
    assert not any(pool.exists() for pool in pools)
