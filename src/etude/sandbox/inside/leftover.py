"""A pipe that a child in the background still writes to after its command has ended. It is drained, so that the child (a server that was
started with `&`, `nohup` or `setsid`) neither waits for a reader nor is ended for want of one; what it writes goes to a file.

Bounded: a file takes `MOST_KEPT_BYTES`, the rest is dropped; after `MOST_DRAINED_BYTES` the pipe is closed, which ends a child that writes
without end. The native runner does the same (`native/leftover.c`).
"""

from __future__ import annotations

import os
import stat

VARIABLE = "ETUDE_LEFT"  # of a command's environment: the path of the file; without it nothing is kept
HEAD = b"[output of a process that its command left running]\n"
MOST_KEPT_BYTES = 1 << 20
MOST_DRAINED_BYTES = 1 << 30
MOST_PIPES = 64
_PIECE_BYTES = 65536


class Leftover:
    """One pipe, whose descriptor becomes its own. `path` None: what comes is dropped."""

    def __init__(self, fd: int, path: str | None) -> None:
        self.fd = fd
        self._left = MOST_DRAINED_BYTES
        self._file = _opened(path) if path else -1
        if self._size() == 0:
            self._keep(HEAD)

    def drain(self) -> bool:
        """Take what is there. False: the pipe is at its end, to be closed."""
        try:
            data = os.read(self.fd, _PIECE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self._left -= len(data)
        if not data or self._left <= 0:
            return False
        self._keep(data)
        return True

    def close(self) -> None:
        os.close(self.fd)
        if self._file >= 0:
            os.close(self._file)

    def _size(self) -> int:
        """Of the file, which the other stream of the command may share."""
        return os.fstat(self._file).st_size if self._file >= 0 else MOST_KEPT_BYTES

    def _keep(self, data: bytes) -> None:
        if (room := MOST_KEPT_BYTES - self._size()) > 0:
            try:
                os.write(self._file, data[:room])
            except OSError:  # a full disk: the child goes on, what it says is lost
                return


def _opened(path: str) -> int:
    """The file, made if it isn't there; -1 where there can be none. A command must not lead it elsewhere."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return -1
