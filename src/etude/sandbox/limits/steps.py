"""The two versions of control groups, each as: a folder of our own, and what is written into the groups of one sandbox.

v2 has one folder for a sandbox, v1 one for each controller. Both bound memory (swap included) and processes; both bound processor time
where the controller is there. Claimed by doing: groups are made, limits written, a process enters; a claim that fails leaves nothing.
No process is moved but the sandbox', and no controller is switched on in a slice of somebody else.
Sources: Documentation/admin-guide/cgroup-v2.rst (delegation; no internal processes), cgroup-v1/{memory,pids}.rst, scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from etude.sandbox.limits import kernel, owner
from etude.sandbox.limits.hierarchy import Hierarchy
from etude.sandbox.spec import SandboxSpec

_NEEDED = ("memory", "pids")
_RUNNER_MB = 64  # the runner and its buffers, in addition to what commands may use
_SHARE = 1024  # the weight of a process that is in no group
_PERIOD_US = 100_000  # the kernel's own default; a shorter one is fairer and costs more


@dataclass(frozen=True)
class GroupFolder:
    """One folder of a sandbox' group: where it is made and what is written into it."""

    parent: Path
    values: tuple[tuple[str, str], ...]


class GroupVersion(Protocol):
    """`pools`: our own folders, of which each sandbox gets a child. `deaths`: the file that counts kills for memory, in the first part."""

    name: str
    deaths: str
    pools: tuple[Path, ...]
    cpus: bool
    prefetch_move: MovePrefetch

    def parts(self, spec: SandboxSpec) -> tuple[GroupFolder, ...]: ...


class GroupV2:
    """Version 2, where some group above us hands its controllers on to us."""

    name, deaths = "cgroup v2", "memory.events"

    def __init__(self, hierarchy: Hierarchy) -> None:
        """Raises OSError with the reasons."""
        self.prefetch_move = MovePrefetch(hierarchy)
        reasons: list[str] = []
        above = [hierarchy.own, *hierarchy.own.parents]
        for parent in above[: above.index(hierarchy.top) + 1]:
            try:
                self._claim(parent, may_switch_on=parent == hierarchy.own)
                return
            except OSError as error:
                reasons.append(error.strerror or str(error))
        raise OSError(f"v2 is not delegated to this user ({'; '.join(dict.fromkeys(reasons))})")

    def _claim(self, parent: Path, may_switch_on: bool) -> None:
        wanted = _wanted((parent / "cgroup.controllers").read_text().split())
        on = (parent / "cgroup.subtree_control").read_text().split()
        if not set(_NEEDED) <= set(on):
            if not may_switch_on:
                raise OSError(f"{parent.name} does not hand memory and pids on")
            kernel.write(parent / "cgroup.subtree_control", " ".join(f"+{name}" for name in wanted))
        else:
            wanted = _wanted(on)
        self.cpus = "cpu" in wanted
        pool = parent / owner.name()
        kernel.make(pool)
        self.pools = (pool,)
        try:
            kernel.write(pool / "cgroup.subtree_control", " ".join(f"+{name}" for name in wanted))
            _try(self)
        except OSError:
            kernel.remove(pool)
            raise

    def parts(self, spec: SandboxSpec) -> tuple[GroupFolder, ...]:
        (pool,) = self.pools
        values = [("memory.max", str(_memory_bytes(spec))), ("memory.swap.max", "0"), ("pids.max", str(_pids(spec)))]
        if spec.cpus is not None:
            values.append(("cpu.max", f"{_quota_us(spec.cpus)} {_PERIOD_US}"))
        return (GroupFolder(pool, tuple(values)),)


class GroupV1:
    """Version 1, which hands nothing on: root only."""

    name, deaths = "cgroup v1", "memory.oom_control"

    def __init__(self, hierarchies: list[Hierarchy]) -> None:
        """Raises OSError."""
        at = {name: one.own for one in hierarchies for name in one.controllers}
        wanted = _wanted(list(at))
        self.prefetch_move = MovePrefetch(next(one for one in hierarchies if "memory" in one.controllers))
        self.cpus = "cpu" in wanted
        made: dict[str, Path] = {}
        name = owner.name()
        try:
            for controller in wanted:
                made[controller] = at[controller] / name
                kernel.make(made[controller])
            if self.cpus:  # all its sandboxes together weigh as one busy process a core, not as one process
                kernel.write(made["cpu"] / "cpu.shares", str(_SHARE * (os.cpu_count() or 1)))
            self._at, self.pools = made, tuple(dict.fromkeys(made.values()))
            _try(self)
        except OSError:
            for pool in dict.fromkeys(made.values()):
                kernel.remove(pool)
            raise

    def parts(self, spec: SandboxSpec) -> tuple[GroupFolder, ...]:
        memory = str(_memory_bytes(spec))
        # In this order: memory and swap together may never be less than memory.
        values = {"memory": [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)]}
        values["pids"] = [("pids.max", str(_pids(spec)))]
        if spec.cpus is not None:
            values["cpu"] = [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", str(_quota_us(spec.cpus)))]
        return tuple(GroupFolder(self._at[name], tuple(texts)) for name, texts in values.items())


_OPTIONAL = ("memory.swap.max", "memory.memsw.limit_in_bytes")  # absent where the kernel does not account swap


def bound(folder: Path, part: GroupFolder) -> None:
    for name, text in part.values:
        try:
            kernel.write(folder / name, text)
        except FileNotFoundError:
            if name not in _OPTIONAL:
                raise


def _wanted(offered: list[str]) -> list[str]:
    if lacking := [name for name in _NEEDED if name not in offered]:
        raise OSError(f"controller {lacking[0]} is absent")
    return [*_NEEDED, *(["cpu"] if "cpu" in offered else [])]


def _try(step: GroupVersion) -> None:
    """A short-lived process enters a group with limits: the right to make groups does not include the right to fill them."""
    trials: list[Path] = []
    try:
        for part in step.parts(SandboxSpec(cpus=1 if step.cpus else None)):
            folder = part.parent / "trial"
            kernel.make(folder)
            trials.append(folder)
            bound(folder, part)
        _visit(trials)
    finally:
        for folder in trials:
            kernel.remove(folder)


def _visit(folders: list[Path]) -> None:
    reader, writer = os.pipe()
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "read x"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)])
    try:
        for folder in folders:
            kernel.write(folder / "cgroup.procs", str(pid))
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(pid, 0)


def _memory_bytes(spec: SandboxSpec) -> int:
    """Files in memory count too (disk_mb; twice with a launcher's two file systems); the runner's watch bounds commands alone."""
    return (spec.memory_mb + 2 * spec.disk_mb + _RUNNER_MB) << 20


def _pids(spec: SandboxSpec) -> int:
    return 2 * spec.pids + 2  # as RLIMIT_NPROC: supervisors come on top


def _quota_us(cpus: float) -> int:
    return round(cpus * _PERIOD_US)


# Once a machine has moved no process between groups for 20 ms, the next move waits for a grace period of RCU: 8 to 12 ms.
# A move that changes nothing (this process into its present group) waits the same time, and the move after it does not wait.
# So the wait runs while the sandbox' first process starts. Source: `cgroup_attach_lock` and `rcu_sync_enter` of Linux.

_OWN = Path("/proc/self/cgroup")


class MovePrefetch:
    """Does nothing, once somebody has moved this process elsewhere: it must not be moved back."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._file, self._before = hierarchy.own / "cgroup.procs", _OWN.read_bytes()

    def __call__(self) -> None:
        if _OWN.read_bytes() != self._before:
            return
        try:
            kernel.write(self._file, str(os.getpid()))
        except OSError:
            return  # the move that counts will wait, and say what is wrong
