"""Whom the kernel kills first when a sandbox has no memory left: commands, however small each of them is, before their runner.

Only more badness can be had without privileges, and only its own is a process' to set; so the runner takes some on while it gives birth,
which children inherit, and puts it off again. Its file must be opened before the runner hides itself.
"""

from __future__ import annotations

import os

_FILE = "/proc/self/oom_score_adj"
_MORE = 500  # of 1000; as if a command held half of the limit in addition to its own memory
_opened: list[tuple[int, bytes]] = []  # the file, and what was in it


def prepare() -> None:
    """Where the file is out of reach (the process back end has hidden itself before) the kernel chooses by size alone."""
    try:
        fd = os.open(_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    _opened[:] = [(fd, os.read(fd, 16).strip())]


def begin() -> None:
    for fd, own in _opened:
        os.pwrite(fd, b"%d" % max(_MORE, int(own)), 0)


def end() -> None:
    """In the runner only: in a child the file would still be the runner's."""
    for fd, own in _opened:
        os.pwrite(fd, own, 0)
