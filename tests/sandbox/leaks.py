"""The leak checker: what a pool holds outside of itself, counted before and after, and nothing that belongs to anybody else.

Counted: descriptors of this process, its threads and tasks, its descendants, mounts of the pool's zygotes, its control groups, what its ledger
says. Other pools of the same process stand still while a test runs, so that what they hold is the same before and after.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from pathlib import Path

from etude.sandbox.cleanup import journal_state
from etude.sandbox.local_pool import LocalPool

Census = dict[str, Counter[str]]


def census(pool: LocalPool) -> Census:
    family = _descendants()
    return {
        "descriptors": Counter(_descriptors()),
        "threads": Counter(
            name for name in _threads() if name != "asyncio_"
        ),  # the loop's own are bounded, and come late
        "tasks": Counter(task.get_name() for task in asyncio.all_tasks()),
        "descriptors of zygotes": Counter({str(pid): _count(pid) for pid in family if _parent(pid) == os.getpid()}),
        "processes": Counter(f"{pid} {name}" for pid, name in family.items()),
        "mounts": Counter(line for pid in family for line in _mounts_of_ours(pid)),
        "groups": Counter(_groups(pool)),
        "ledger": Counter(_entered(pool)),
    }


async def grown(pool: LocalPool, before: Census, patience_s: float = 5.0) -> dict[str, dict[str, int]]:
    """What there is more of than before; empty as soon as nothing is. The dead take a moment: a network is taken down by the kernel later."""
    end_s = time.monotonic() + patience_s
    while True:
        after = census(pool)
        more = {kind: dict(after[kind] - before[kind]) for kind in after if after[kind] - before[kind]}
        if not more or time.monotonic() > end_s:
            return more
        await asyncio.sleep(0.02)


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def _groups(pool: LocalPool) -> list[str]:
    """But for those in which a zygote waits for its next sandbox: one each, whatever was there before."""
    spots = {folder for spot in pool._groups._spots.values() for folder in spot.folders}
    there = [path for top in pool._groups.pools for path in top.iterdir() if path.is_dir()]
    return [str(path) for path in there if path not in spots]


def _threads() -> list[str]:
    return [thread.name.rstrip("0123456789") for thread in threading.enumerate()]


def _descriptors() -> list[str]:
    """By what they are; numbers of sockets and pipes change with each."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":[")[0])
        except FileNotFoundError:
            continue  # the one that listed them
    return found


def _count(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0  # gone meanwhile


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # gone meanwhile


def _descendants() -> dict[int, str]:
    parents: dict[int, tuple[int, str]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            head, _, rest = Path(f"/proc/{name}/stat").read_text().rpartition(")")
        except OSError:
            continue  # gone
        parents[int(name)] = (int(rest.split()[1]), head.partition("(")[2])

    def ours(pid: int) -> bool:
        while pid > 1 and pid in parents:
            pid = parents[pid][0]
            if pid == os.getpid():
                return True
        return False

    return {pid: name for pid, (_, name) in parents.items() if ours(pid)}


def _mounts_of_ours(pid: int) -> list[str]:
    """Of a child that stays, such as a zygote; none of one that shares our table."""
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return []
        return [f"{pid} {line.split()[4]}" for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    except OSError:
        return []  # gone meanwhile: then it holds nothing


def _entered(pool: LocalPool) -> list[str]:
    found = journal_state.read(pool._journal.path)
    return [] if found is None else list(found.entries)
