"""Taking away what nobody can want any more: snapshots without name or holder, and layers that no snapshot names.

A snapshot without a name is kept for a while after its last use, because whoever asked for it may hold nothing but its digest. What a
killed process left is taken at once. Collecting is atomic for everybody else (the store is locked while things are moved into the trash,
which takes milliseconds), and the removing happens outside of the lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from etude.layers.lease import leases
from etude.layers.snapshot import Snapshot
from etude.layers.store import LayerStore
from etude.layers.tree import remove_tree

PATIENCE_S = 24 * 3600.0


@dataclass(frozen=True)
class Collected:
    """What a collection took."""

    snapshots: int
    layers: int
    drafts: int  # of processes that were killed


def collect(store: LayerStore, *, patience_s: float = PATIENCE_S) -> Collected:
    """`patience_s`: how long after its last use a snapshot stays that has neither name nor holder."""
    with store.locked(fcntl.LOCK_EX):
        held, dead = leases(store.live)
        drafts = sum(1 for folder in dead for _ in folder.glob("draft-*"))
        for folder in dead:
            _into_trash(store, folder)
        wanted = held | set(store.names.all().values())
        gone, needed = 0, set()
        for path in store.snapshots.iterdir():
            if path.name not in wanted and time.time() - path.stat().st_mtime >= patience_s:
                path.unlink()
                gone += path.name[0] != "."
            else:
                needed |= _layers_of(store, path)
        useless = [path for path in store.layers.iterdir() if path.name not in needed]
        for path in useless:
            _into_trash(store, path)
    for path in store.trash.iterdir():
        with suppress(FileNotFoundError):  # another collection removes it as well
            remove_tree(path)
    return Collected(gone, len(useless), drafts)


def _layers_of(store: LayerStore, record: Path) -> set[str]:
    """Names of the folders that a snapshot needs. One that can't be read needs what it can't say: its layers go with others' consent."""
    try:
        return {store.layer(digest).name for digest in Snapshot.parse(record.read_bytes()).layers}
    except (ValueError, KeyError, TypeError):
        return set()


def _into_trash(store: LayerStore, path: Path) -> None:
    path.rename(store.trash / f"{path.name}-{os.urandom(4).hex()}")
