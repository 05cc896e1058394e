"""An upper folder of an overlay, written down as a dict."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etude.sandbox.layers import overlay
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot

GONE, OPAQUE = object(), object()  # a whiteout; a folder that hides what is below it
Tree = dict[str, object]  # path -> bytes, "-> target", GONE, OPAQUE, or None for a folder


def write(folder: Path, tree: Tree) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, what in tree.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, bytes):
            place.write_bytes(what)
        elif isinstance(what, str):
            place.symlink_to(what.removeprefix("-> "))
        elif what is GONE:
            fd = os.open(place.parent, os.O_RDONLY)
            overlay.make_whiteout(place.name, fd)
            os.close(fd)
        else:
            place.mkdir(exist_ok=True)
            if what is OPAQUE:
                os.setxattr(place, overlay.OPAQUE, b"y")


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def stack(store: LayerStore, folder: Path, *trees: Tree, name: str = "") -> PinnedSnapshot:
    """One layer for each tree, the last one on top; only the whole chain is named."""
    held: PinnedSnapshot | None = None
    for number, tree in enumerate(trees):
        place = folder / f"upper-{os.urandom(3).hex()}"
        write(place, tree)
        with opened(place) as fd:
            below = held.snapshot if held is not None else Snapshot()
            above = store.ingest(fd, below, name=name if number == len(trees) - 1 else "")
        if held is not None:
            held.release()
        held = above
    assert held is not None
    return held
