"""One run at a time per directory. The kernel holds the lock and drops it when the process dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType


class RunBusy(Exception):
    """Another process works in this run directory."""


class RunLock:
    """Context manager around `<run>/lock`. The file names the holder; a file left by a dead one locks nothing.

    A POSIX record lock, not flock: forked children don't inherit it, so a sandbox that outlives a killed run can't keep
    the next run out.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / "lock"

    def __enter__(self) -> RunLock:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise RunBusy(
                f"{self._path.parent} is in use by process {holder}; wait for it, stop it, or choose another --out"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


def holder(run: Path) -> int | None:
    """The process that works in a run directory now, None if nobody does."""
    try:
        with RunLock(run):
            return None
    except RunBusy:
        text = (run / "lock").read_text().strip()
        return int(text) if text.isdigit() else 0
