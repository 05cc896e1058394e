"""Processes of this sandbox, read from /proc: who is below whom, who is to die, who eats the memory.

With a pid namespace these are all there are. Without one (`narrow`) /proc shows the host, and ours are those below the runner.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import os

TYPE_CHECKING = False  # as in `typing`, without importing it
if TYPE_CHECKING:
    from collections.abc import Iterable

    from etude.sandbox.inside.job import Job

_ROUNDS = 400  # a fork bomb under the pid limit is caught in a few; this only bounds a race that should not exist
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_narrowed: list[int] = []  # the runner's pid where there is no pid namespace
_alone: list[
    int
] = []  # what the runner held at first, where the kernel is the sandbox' own and tells no process' private memory
_fostered: list[bytes] = []  # how /proc says that a process came from a supervisor, where the kernel has no subreapers


def narrow() -> None:
    """From now on only processes below this one count."""
    _narrowed[:] = [os.getpid()]


def is_narrow() -> bool:
    return bool(_narrowed)


def foster() -> None:
    """From now on an orphan's parent is the supervisor whose group it is in (`apart`), and the kernel's memory is ours."""
    _fostered[:] = [b":job:/supervisors/"]
    _alone[:] = [_all_anonymous()]


def living() -> set[int]:
    """All processes but the runner. No child means no process: every orphan is the runner's child."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    return _pids()


def _pids() -> set[int]:
    if _narrowed:
        return below(_narrowed, _parents(_listed(), b"")) - set(_narrowed)
    return _listed() - {1}


def _listed() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def parents() -> dict[int, int]:
    """pid -> parent, zombies left out."""
    return _parents(_pids(), b"ZX")


def _parents(pids: set[int], left_out: bytes) -> dict[int, int]:
    found: dict[int, int] = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                text = file.read(1024)
        except OSError:
            continue  # gone since it was listed
        state, parent = text[text.rindex(b")") + 2 :].split(b" ", 2)[:2]
        if state not in left_out:
            found[pid] = _supervisor(pid) or 1 if _fostered and parent == b"1" else int(parent)
    return found


def _supervisor(pid: int) -> int:
    """0 for one that none has started, and for a supervisor itself."""
    try:
        with open(f"/proc/{pid}/cgroup", "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return 0  # gone since it was listed
    for line in text.splitlines():
        _, mark, number = line.partition(_fostered[0])
        if mark and int(number) != pid:
            return int(number)
    return 0


def below(roots: Iterable[int], parent_of: dict[int, int]) -> set[int]:
    """The roots and everything under them."""
    members = set(roots)
    grew = True
    while grew:
        fresh = {pid for pid, parent in parent_of.items() if parent in members and pid not in members}
        members |= fresh
        grew = bool(fresh)
    return members


def kill(pid: int, number: int = _signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # already gone, as intended


def kill_below(supervisor: int) -> None:
    """Kill a subreaper's whole tree. It is stopped first, so that it stays the parent of its orphans until they are dead."""
    kill(supervisor, _signal.SIGSTOP)
    for _ in range(_ROUNDS):
        targets = below([supervisor], parents()) - {supervisor}
        if not targets:
            break
        for pid in targets:
            kill(pid)
    kill(supervisor)


def kill_except(spared: set[int]) -> None:
    """Kill everything that is neither spared nor below a spared one."""
    for _ in range(_ROUNDS):
        parent_of = parents()
        targets = set(parent_of) - below(spared, parent_of)
        if not targets:
            return
        for pid in targets:
            kill(pid)


def memory_hog(limit_bytes: int) -> int | None:
    """The largest process, if all together hold more private and shared memory than the limit."""
    sizes = {pid: _resident(pid) for pid in _pids()}
    if sum(sizes.values()) <= limit_bytes:
        return None
    if _alone:
        return max(sizes, key=lambda pid: sizes[pid]) if _all_anonymous() - _alone[0] > limit_bytes else None
    inherited = _anonymous(os.getpid())
    sizes = {pid: _proportional(pid, inherited) for pid in sizes}  # forks share pages: count each page once
    if sum(sizes.values()) <= limit_bytes:
        return None
    return max(sizes, key=lambda pid: sizes[pid])


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            return int(file.read(256).split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0  # gone


def _proportional(pid: int, inherited_bytes: int) -> int:
    """Its share of every page; for one that hides that (warm runs do, as PID 1 does), what it holds beyond the runner's own."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            for line in file.read(4096).splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) << 10
    except OSError:
        return max(_anonymous(pid) - inherited_bytes, 0)
    return 0


def _anonymous(pid: int) -> int:
    """Bytes of private and shared memory that are no file's."""
    total = 0
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            for line in file.read(8192).splitlines():
                if line.startswith((b"RssAnon:", b"RssShmem:")):
                    total += int(line.split()[1]) << 10
    except OSError:
        return 0  # gone
    return total


def _all_anonymous() -> int:
    """Bytes of the whole kernel's processes, each page once, without files in memory."""
    with open("/proc/meminfo", "rb", buffering=0) as file:
        found = {line.split()[0]: int(line.split()[1]) << 10 for line in file.read(8192).splitlines()}
    return found[b"AnonPages:"] - found[b"Shmem:"]


def owner(pid: int, leaders: dict[int, Job]) -> Job | None:
    """The leader at or above a process, if there is one."""
    parent_of = parents()
    while pid in parent_of and pid not in leaders:
        pid = parent_of[pid]
    return leaders.get(pid)
