"""One run at a time per directory. The kernel holds the lock and drops it when the process dies, however it dies."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path
from types import TracebackType

NAME = "lock"
_MOST_BYTES = 32  # a process number and a line end
_FLOCK = "hhqqi"  # struct flock: type, whence, start, length, process
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a link is refused, and a pipe doesn't block
_HELD: dict[tuple[int, int], int] = {}  # device and inode of each lock that this process holds, and its number


class RunBusy(Exception):
    """Another process works in this run directory."""


class NotALock(Exception):
    """What has the lock's name is another's file, and was left as it is."""


class RunLock:
    """Context manager around `<run>/lock`. The file names the holder; a file left by a dead one locks nothing. Raises RunBusy, and NotALock for
    a link, for what is no regular file, and for a file with other content.

    A POSIX record lock, not flock: forked children don't inherit it, so a sandbox that outlives a killed run can't keep
    the next run out. A process loses such a lock when it closes any descriptor of the file, so here its own locks are never opened again (`_HELD`).
    """

    def __init__(self, run: Path) -> None:
        self._path = run / NAME

    def __enter__(self) -> RunLock:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o644)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise self._foreign() from error
            raise
        try:
            if not _is_lock(self._file):
                raise self._foreign()
            self._take()
        except BaseException:
            os.close(self._file)
            raise
        return self

    def _take(self) -> None:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._file, _MOST_BYTES).decode(errors="replace").strip() or "unknown"
            raise RunBusy(
                f"{self._path.parent} is in use by process {holder}; wait for it, stop it, or choose another --out"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        _HELD[_identity(os.fstat(self._file))] = os.getpid()

    def _foreign(self) -> NotALock:
        return NotALock(
            f"{self._path} is a link, no regular file, or holds something that no run wrote; nothing was changed: "
            "move it away, or choose another --out"
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _HELD.pop(_identity(os.fstat(self._file)), None)
        os.ftruncate(self._file, 0)
        os.close(self._file)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _held_here(path: Path) -> bool:
    """Whether this process holds the lock at `path`. Opens nothing."""
    try:
        return _HELD.get(_identity(path.lstat())) == os.getpid()  # a forked child has the table and not the lock
    except OSError:
        return False


def is_lock(path: Path) -> bool:
    """Whether a file is a run's lock: a regular file that is empty or holds a process number."""
    if _held_here(path):
        return True
    try:
        file = os.open(path, os.O_RDONLY | _PLAIN)
    except OSError:
        return False
    try:
        return _is_lock(file)
    finally:
        os.close(file)


def holder(run: Path) -> int | None:
    """The process that works in a run directory now, 0 for one whose number is unknown, None without one. Writes nothing."""
    if _held_here(run / NAME):
        return os.getpid()
    try:
        file = os.open(run / NAME, os.O_RDONLY | _PLAIN)
    except OSError:
        return None
    try:
        if not _is_lock(file):
            return None
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        if struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK:
            return None
        text = os.pread(file, _MOST_BYTES, 0).strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(file)


def _is_lock(file: int) -> bool:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return False
    content = os.pread(file, _MOST_BYTES + 1, 0)
    return len(content) <= _MOST_BYTES and (not content.strip() or content.strip().isdigit())
