"""A pseudo-terminal for a command: one end for the runner, one that the command's session is led from."""

from __future__ import annotations

import fcntl
import os
import struct

_PTMX = "/dev/ptmx"
_TIOCSPTLCK, _TIOCGPTPEER, _TIOCSWINSZ, _TIOCSCTTY = 0x40045431, 0x5441, 0x5414, 0x540E  # alike on x86-64 and ARM
_MOST = 65535
END = b"\x04"  # what a terminal in its usual mode takes for the end of input


def open_pair(rows: int, columns: int) -> tuple[int, int]:
    """(the runner's end, the command's). Raises OSError: ENOENT where the sandbox has no terminals."""
    ours = os.open(_PTMX, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(ours, _TIOCSPTLCK, struct.pack("i", 0))
        theirs = fcntl.ioctl(ours, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)  # no path is needed for it
        resize(ours, rows, columns)
    except OSError:
        os.close(ours)
        raise
    return ours, theirs


def resize(ours: int, rows: int, columns: int) -> None:
    size = (min(max(rows, 0), _MOST), min(max(columns, 0), _MOST), 0, 0)
    fcntl.ioctl(ours, _TIOCSWINSZ, struct.pack("HHHH", *size))


def lead(theirs: int) -> None:
    """In the command's process, which leads a new session: this is its terminal."""
    fcntl.ioctl(theirs, _TIOCSCTTY, 0)
