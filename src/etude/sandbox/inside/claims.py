"""Claims of the zygote on ranges of users: locks that it keeps until every process that could be one of these users is dead.

The client holds the same locks, and may die first. The kernel frees a dead process' locks before it kills the rest of its pid namespace,
so process 1 of a sandbox can't hold its own; its parent hears of its death only when no process of the namespace is left.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import os

from etude.sandbox.inside import users


class Claim:
    """A range of users for one sandbox: its first user and group as the zygote sees them, and the lock, a descriptor."""

    def __init__(self, uid: int, gid: int, lock: int) -> None:
        self.uid, self.gid, self.lock = uid, gid, lock


_locks: dict[int, int] = {}  # by the pid of the sandbox


def keep(claim: Claim, pid: int) -> None:
    """Map a newborn, which waits for its spec, and hold its claim. Raises OSError where it can't be mapped, and then kills it."""
    _locks[pid] = claim.lock
    try:
        users.give_range(pid, claim.uid, claim.gid)
    except OSError:
        os.kill(pid, _signal.SIGKILL)
        raise
    finally:
        _look_after(pid)


def end(pid: int) -> None:
    """A child was waited for."""
    if pid in _locks:
        os.close(_locks.pop(pid))


def disown(claim: Claim | None) -> None:
    """In a forked sandbox: the locks are the zygote's."""
    for lock in (*_locks.values(), *([] if claim is None else [claim.lock])):
        os.close(lock)
    _locks.clear()


def outlive() -> None:
    """Sandboxes end by themselves when their client does; return when those with claims have."""
    while _locks:
        try:
            end(os.waitpid(-1, 0)[0])
        except ChildProcessError:
            return  # the handler was faster


def _look_after(pid: int) -> None:
    """The handler may have waited for it before its claim was entered."""
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            end(pid)
    except ChildProcessError:
        end(pid)
