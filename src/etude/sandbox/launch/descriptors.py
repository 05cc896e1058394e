"""Descriptors for container engines: they hand on those from number 3 upwards, and no others."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack

KEPT = (3, 4)  # the control socket, the program
_HIGH = 64  # they are copied to numbers above this first, so that 3 and 4 are free
# A shell can't name descriptors above 9.
KEEP = (
    "import os, sys; high = [int(word) for word in sys.argv[1:3]]; "
    f"[os.dup2(fd, low) for fd, low in zip(high, {KEPT})]; [os.close(fd) for fd in high]; os.execv(sys.argv[3], sys.argv[3:])"
)


def lifted(descriptors: tuple[int, int], files: ExitStack) -> list[int]:
    """Copies for `KEEP`'s command line, closed with `files`."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in descriptors]
    for fd in high:
        files.callback(os.close, fd)
    return high
