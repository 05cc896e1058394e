"""Layers in memory that killed processes left: no process pins them, and no process may open their store again.

A store's own collection takes them too; this is for stores that are never opened again, or are gone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etude.sandbox.layers.backing import MEMORY, STORE, prefix
from etude.sandbox.layers.lease import leases
from etude.sandbox.layers.tree import remove_tree


def orphaned_stores(memory: Path = MEMORY) -> list[Path]:
    """This user's folders in which no living process has a lease."""
    places = memory.glob(f"{prefix()}*") if memory.is_dir() else ()
    return sorted(place for place in places if place.lstat().st_uid == os.geteuid() and not _is_used(place))


def remove_orphaned(place: Path) -> bool:
    """False where a process has taken a lease meanwhile. A lease is taken with the store locked, so none can be taken in between."""
    with _locked(place):
        if _is_used(place):
            return False
        remove_tree(place)
        return True


def _is_used(place: Path) -> bool:
    live = place / "live"
    return live.is_dir() and len(leases(live)[1]) < sum(1 for _ in live.iterdir())


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """The store that the folder is of, if it is still there."""
    name = place / STORE
    lock = Path(os.fsdecode(name.read_bytes())) / "lock" if name.is_file() else None
    if lock is None or not lock.is_file():
        yield
        return
    fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
