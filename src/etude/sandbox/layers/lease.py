"""What one process has of a store: drafts, and the snapshots that it holds. All of it counts while the process lives, and no longer.

A folder of its own, with a file locked by flock: the kernel lets go of the lock when the process ends, however it ends, and no number of
a process can be mistaken for another's. A folder whose lock can be had is a dead one's, and the next collection removes it.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

from etude.sandbox.layers.tree import remove_tree

_HOLD = "hold-"
_YOUNG = ".new-"  # a folder whose lock is not yet taken


class Lease:
    """Thread-safe. Made on first use; a forked child must open a store of its own."""

    def __init__(self, parent: Path) -> None:
        name = f"{os.getpid()}-{os.urandom(6).hex()}"
        young = parent / f"{_YOUNG}{name}"
        young.mkdir(parents=True, mode=0o700)
        self._lock = os.open(young / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.folder = parent / name
        young.rename(self.folder)
        self._numbers = itertools.count()
        self._held: Counter[str] = Counter()
        self._guard = threading.Lock()

    def draft_folder(self) -> Path:
        return self.folder / f"draft-{next(self._numbers)}"

    def hold(self, digest: str) -> bool:
        """Whether it is the first hold of this snapshot here."""
        with self._guard:
            first = not self._held[digest]
            if first:
                os.close(os.open(self.folder / f"{_HOLD}{digest}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._held[digest] += 1
            return first

    def release(self, digest: str) -> None:
        with self._guard:
            self._held[digest] -= 1
            if not self._held[digest]:
                del self._held[digest]
                (self.folder / f"{_HOLD}{digest}").unlink(missing_ok=True)

    def holds(self, digest: str) -> bool:
        with self._guard:
            return digest in self._held

    def close(self) -> None:
        """All of it goes."""
        if self._lock >= 0:
            remove_tree(self.folder)
            os.close(self._lock)
            self._lock = -1


def leases(parent: Path) -> tuple[set[str], list[Path]]:
    """Snapshots held by living processes, and the folders of dead ones. To be called with the store locked."""
    held: set[str] = set()
    dead: list[Path] = []
    for folder in parent.iterdir() if parent.is_dir() else ():
        if _is_dead(folder):
            dead.append(folder)
            continue
        with suppress(FileNotFoundError):  # it ended this moment: the next collection finds it dead
            held |= {name.removeprefix(_HOLD) for name in os.listdir(folder) if name.startswith(_HOLD)}
    return held, dead


def _is_dead(folder: Path) -> bool:
    if folder.name.startswith(
        _YOUNG
    ):  # between mkdir and the lock, for microseconds; a kill in there leaves an empty one
        pid = folder.name.removeprefix(_YOUNG).partition("-")[0]
        return not Path("/proc", pid).exists()
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
