"""A process that ends with the one that started it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with(parent: int) -> None:
    """This process is killed when the thread of `parent`, its parent's id, that started it ends; at once where it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)
