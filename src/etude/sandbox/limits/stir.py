"""Begins the wait that the kernel puts before moving a process, ahead of time.

Once a machine has moved no process between groups for 20 ms, the next move waits for a grace period of RCU: 8 to 12 ms. A move that
changes nothing, of ourselves into the group where we are, waits just so, and the one after it no more. So the wait runs while the
sandbox' first process is being started. Source: `cgroup_attach_lock` and `rcu_sync_enter` of Linux.
"""

from __future__ import annotations

import os
from pathlib import Path

from etude.sandbox.limits import kernel
from etude.sandbox.limits.hierarchy import Hierarchy

_OWN = Path("/proc/self/cgroup")


class Stir:
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
