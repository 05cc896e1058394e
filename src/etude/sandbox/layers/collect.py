"""Garbage collection: snapshots without a name or a pin, and layers that no snapshot names.

A snapshot without a name is kept for a while after its last use, because the one who asked for it may hold nothing but its digest. What a
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

from etude.sandbox.layers.backing import StoreBacking
from etude.sandbox.layers.lease import leases
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore
from etude.sandbox.layers.tree import remove_tree

PATIENCE_S = 24 * 3600.0


@dataclass(frozen=True)
class CollectionResult:
    """What a collection took."""

    snapshots: int
    layers: int
    drafts: int  # of processes that were killed


def collect(store: LayerStore, *, patience_s: float = PATIENCE_S) -> CollectionResult:
    """`patience_s`: how long after its last use a snapshot stays that has neither name nor holder."""
    with store.lock(fcntl.LOCK_EX):
        held, drafts = set[str](), 0
        for backing in store.backings:
            holds, dead = leases(backing.live)
            held |= holds
            drafts += sum(1 for folder in dead for _ in folder.glob("draft-*"))
            for folder in dead:
                _into_trash(backing, folder)
        wanted = held | set(store.names.all().values())
        gone, needed, in_use = 0, set[str](), set[str]()
        for path in store.snapshots.iterdir():
            if path.name not in wanted and time.time() - path.stat().st_mtime >= patience_s:
                path.unlink()
                gone += path.name[0] != "."
            else:
                layers = _layers_of(store, path)
                needed |= layers
                in_use |= layers if path.name in held else set()
        useless = 0
        for backing in store.backings:
            kept = (
                needed
                if backing is store.disk
                else in_use | {one for one in needed if not (store.layers / one).is_dir()}
            )
            for path in [path for path in backing.layers.iterdir() if path.name not in kept]:
                _into_trash(backing, path)
                useless += 1
    for path in [path for backing in store.backings for path in backing.trash.iterdir()]:
        with suppress(FileNotFoundError):  # another collection removes it as well
            remove_tree(path)
    return CollectionResult(gone, useless, drafts)


def _layers_of(store: LayerStore, record: Path) -> set[str]:
    """Names of the folders that a snapshot needs. One that can't be read needs what it can't say: its layers go with others' consent."""
    try:
        return {store.disk.layer(digest).name for digest in Snapshot.parse(record.read_bytes()).layers}
    except (ValueError, KeyError, TypeError):
        return set()


def _into_trash(backing: StoreBacking, path: Path) -> None:
    path.rename(backing.trash / f"{path.name}-{os.urandom(4).hex()}")
