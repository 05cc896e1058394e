"""Processes of this pid namespace, read from /proc: who is below whom, who is to die, who eats the memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import TypeVar

_ROUNDS = 400  # a fork bomb under the pid limit is caught in a few; this only bounds a race that should not exist
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
T = TypeVar("T")


def living() -> set[int]:
    """All processes but PID 1. No child means no process: every orphan is PID 1's child."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    return _pids()


def _pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()} - {1}


def parents() -> dict[int, int]:
    """pid -> parent, zombies left out."""
    found: dict[int, int] = {}
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                text = file.read(1024)
        except OSError:
            continue  # gone since it was listed
        state, parent = text[text.rindex(b")") + 2 :].split(b" ", 2)[:2]
        if state not in (b"Z", b"X"):
            found[pid] = int(parent)
    return found


def below(roots: Iterable[int], parent_of: dict[int, int]) -> set[int]:
    """The roots and everything under them."""
    members = set(roots)
    grew = True
    while grew:
        fresh = {pid for pid, parent in parent_of.items() if parent in members and pid not in members}
        members |= fresh
        grew = bool(fresh)
    return members


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # already gone, which is what was wanted


def kill_below(supervisor: int) -> None:
    """Kill a subreaper's whole tree. It is stopped first, so that it stays the parent of its orphans until they are dead."""
    kill(supervisor, signal.SIGSTOP)
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
    sizes = {pid: _anonymous(pid) for pid in _pids()}
    if sum(sizes.values()) <= limit_bytes:
        return None
    sizes = {pid: _proportional(pid, size) for pid, size in sizes.items()}  # forks share pages: count each page once
    if sum(sizes.values()) <= limit_bytes:
        return None
    return max(sizes, key=lambda pid: sizes[pid])


def _anonymous(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            resident = int(file.read(256).split()[1])
    except (OSError, IndexError):
        return 0  # gone
    return resident * _PAGE_BYTES


def _proportional(pid: int, otherwise: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            for line in file.read(4096).splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) << 10
    except OSError:
        return otherwise  # it made itself unreadable: counted in full
    return otherwise


def owner(pid: int, leaders: dict[int, T]) -> T | None:
    """The leader at or above a process, if there is one."""
    parent_of = parents()
    while pid in parent_of and pid not in leaders:
        pid = parent_of[pid]
    return leaders.get(pid)
