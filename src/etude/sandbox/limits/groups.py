"""Control groups (v2) for sandboxes where the system lets this user have some: memory and processes bounded by the kernel.

Found by doing: a group is made below ours, or beside it in a slice that a systemd user session owns; limits are written, a process
enters. No process is moved but the sandbox', and no controller is switched on in a slice of somebody else. Elsewhere limits are
rlimits and the runner's watch; either way the watch goes on, because `memory.max` also counts files in tmpfs.
Source: Documentation/admin-guide/cgroup-v2.rst of Linux (delegation; no internal processes).
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from etude.sandbox.errors import CapacityExhausted, SandboxDied
from etude.sandbox.spec import SandboxSpec

_WANTED = ("memory", "pids")
_RUNNER_MB = 64  # the runner and its buffers, beside what commands may use
_MOUNTS = Path("/proc/self/mountinfo")
_OWN = Path("/proc/self/cgroup")


class Group:
    """One sandbox' group."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._killed = 0

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed for memory since the last question."""
        events = dict(line.split() for line in (self._folder / "memory.events").read_text().splitlines())
        before, self._killed = self._killed, int(events.get("oom_kill", 0))
        return self._killed > before

    def remove(self) -> None:
        try:
            self._folder.rmdir()
        except FileNotFoundError:
            return


class ControlGroups:
    """`limits` is what a report says; `reason` why there are no groups."""

    def __init__(self, folder: Path | None, reason: str = "") -> None:
        self._folder, self.reason = folder, reason
        self._numbers = itertools.count(1)

    @property
    def available(self) -> bool:
        return self._folder is not None

    @property
    def limits(self) -> str:
        return "cgroup v2+rlimits+watch" if self.available else f"rlimits+watch (no cgroup: {self.reason})"

    @classmethod
    def find(cls, mounts: Path = _MOUNTS, own: Path = _OWN) -> ControlGroups:
        """Never raises: what can't be had is a reason."""
        try:
            mounted, here = _own_folder(mounts, own)
        except (OSError, ValueError, StopIteration):
            return cls(None, "no cgroup v2 is mounted")
        reasons: list[str] = []
        for parent in [here] if here == mounted or os.geteuid() == 0 else [here, here.parent]:
            try:
                return cls(_claim(parent, may_switch_on=parent == here))
            except OSError as error:
                reasons.append(f"{error.strerror or error}")
        return cls(None, f"v2 is not delegated to this user ({'; '.join(dict.fromkeys(reasons))})")

    def make(self, spec: SandboxSpec, pidfd: int) -> Group:
        """A group with the spec's limits that holds the process. Raises CapacityExhausted, SandboxDied."""
        assert self._folder is not None, "ask `available` first"
        folder = self._folder / f"sandbox-{next(self._numbers)}"
        try:
            folder.mkdir()
            _limit(folder, spec)
            (folder / "cgroup.procs").write_text(str(_pid(pidfd)))
        except (OSError, SandboxDied) as error:
            if folder.is_dir():
                folder.rmdir()
            if isinstance(error, SandboxDied):
                raise
            raise CapacityExhausted(f"control group {folder.name}: {error.strerror}") from None
        return Group(folder)

    def close(self) -> None:
        if self._folder is not None and self._folder.is_dir():
            self._folder.rmdir()
        self._folder = None


def _own_folder(mounts: Path, own: Path) -> tuple[Path, Path]:
    """Where groups are mounted, and where that of this process shows there."""
    inside = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    for line in mounts.read_text().splitlines():
        words, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            root, target = words.split()[3:5]
            return Path(target), Path(target, os.path.relpath(inside, root))
    raise ValueError("no cgroup2 mount")


def _claim(parent: Path, may_switch_on: bool) -> Path:
    """A group of ours below `parent` whose children get both controllers. Raises OSError, and then leaves nothing."""
    offered = (parent / "cgroup.controllers").read_text().split()
    if lacking := [name for name in _WANTED if name not in offered]:
        raise OSError(f"controller {lacking[0]} is absent")
    if not set(_WANTED) <= set((parent / "cgroup.subtree_control").read_text().split()):
        if not may_switch_on:
            raise OSError(f"{parent.name} does not hand memory and pids on")
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _WANTED))
    folder = parent / f"etude-{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir()
    try:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _WANTED))
        trial = folder / "trial"
        trial.mkdir()
        try:
            _limit(trial, SandboxSpec())
            _visit(trial)
        finally:
            trial.rmdir()
    except OSError:
        folder.rmdir()
        raise
    return folder


def _visit(folder: Path) -> None:
    """A short-lived process enters: the right to make groups does not include the right to move processes into them."""
    reader, writer = os.pipe()
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "read x"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)])
    try:
        (folder / "cgroup.procs").write_text(str(pid))
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(pid, 0)


def _limit(folder: Path, spec: SandboxSpec) -> None:
    # Two file systems in memory of disk_mb each; the tighter bound on commands alone is the runner's watch.
    memory_mb = spec.memory_mb + 2 * spec.disk_mb + _RUNNER_MB
    (folder / "memory.max").write_text(str(memory_mb << 20))
    if (swap := folder / "memory.swap.max").exists():
        swap.write_text("0")
    (folder / "pids.max").write_text(str(2 * spec.pids + 2))  # as RLIMIT_NPROC: supervisors come on top


def _pid(pidfd: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:") and int(line.split()[1]) > 0:
            return int(line.split()[1])
    raise SandboxDied("the sandbox' first process died before it had its limits")
