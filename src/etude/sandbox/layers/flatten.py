"""Many layers as one, with the same contents. Depth costs little to look things up in, but mount options must fit into a page.

Only what lies above an image's own layers is merged: those are large, and shared. The merged layer still hides what its layers hid.
Files are hard links: nothing is read or written again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace

from etude.sandbox.layers import overlay
from etude.sandbox.layers.draft import LayerDraft
from etude.sandbox.layers.manifest import LayerEntry, LayerManifest
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.layers.tree import CREATE, FOLDER, LayerTree
from etude.sandbox.layers.tree_import import copy
from etude.sandbox.layers.view import LayerView

DEPTH = 40  # layers a chain may have before a snapshot of it is flattened

Placed = dict[str, tuple[LayerEntry, str]]  # path -> what is there, and the digest of the layer that has it


def flatten(
    store: LayerStore, held: PinnedSnapshot, *, depth: int = DEPTH, name: str = "", transient: bool = False
) -> PinnedSnapshot:
    """The same hold where its chain is no deeper than `depth`; else one of the same contents, and the first is released."""
    snapshot = held.snapshot
    cut = len(snapshot.layers) - snapshot.base
    if len(snapshot.layers) <= depth or cut < 2:
        return held
    above, base = snapshot.layers[:cut], snapshot.layers[cut:]
    merged = merge((digest, store.manifest(digest)) for digest in reversed(above))
    merged = needed(merged, LayerView.of(store, replace(snapshot, layers=base)))
    with store.drafting() as draft:
        _build(store, draft, merged)
        flattened = store.commit(draft, replace(snapshot, layers=base), name=name, transient=transient)
    held.release()
    return flattened


def merge(lowest_first: Iterable[tuple[str, LayerManifest]]) -> Placed:
    """What these layers say together to layers below them."""
    found: Placed = {}
    for digest, manifest in lowest_first:
        for entry in manifest.entries:
            there = found[entry.path][0] if entry.path in found else None
            if entry.kind == "dir" and not entry.opaque:
                # Below what is no folder nothing shines through: neither here nor after merging.
                opaque = there is not None and (there.kind != "dir" or there.opaque)
                found[entry.path] = replace(entry, opaque=opaque), digest
                continue
            if there is not None and there.kind == "dir":
                for path in [path for path in found if path.startswith(f"{entry.path}/")]:
                    del found[path]
            found[entry.path] = entry, digest
    return found


def needed(merged: Placed, below: LayerView) -> Placed:
    """Without whiteouts that hide nothing, and marks on folders that hide nothing: the kernel lists a whiteout where no lower layer has
    its folder, and then finds nothing under its name."""
    found: Placed = {}
    covered: set[str] = set()  # folders below which nothing shines through
    for path in sorted(merged, key=os.fsencode):
        entry, origin = merged[path]
        if os.path.dirname(path) in covered:
            if entry.kind == "dir":
                covered.add(path)
            hides = False
        else:
            if entry.kind == "dir" and (entry.opaque or path not in below.entries):
                covered.add(path)
            hides = path in below.entries
        if entry.kind == "gone" and not hides:
            continue
        found[path] = (entry if hides or not entry.opaque else replace(entry, opaque=False)), origin
    return found


def _build(store: LayerStore, draft: LayerDraft, merged: Placed) -> None:
    folders: list[LayerEntry] = []
    with ExitStack() as stack:
        ours = stack.enter_context(LayerTree(draft.tree))
        sources = {
            origin: stack.enter_context(LayerTree(store.layer(origin) / "tree")) for _, origin in merged.values()
        }
        for path in sorted(merged, key=os.fsencode):
            entry, origin = merged[path]
            folder, name = ours.parent(path)
            if entry.kind == "dir":
                os.mkdir(name, 0o700, dir_fd=folder)
                folders.append(entry)
                draft.note(entry)
            elif entry.kind == "file":
                draft.note(entry, _link(sources[origin], entry, name, folder, draft))
            elif entry.kind == "link":
                draft.link(entry.content, name, folder)
                draft.note(entry)
            else:
                overlay.make_whiteout(name, folder)
                draft.note(entry)
        for entry in reversed(folders):  # modes last and deepest first: a folder may be closed to its own owner
            folder, name = ours.parent(entry.path)
            fd = os.open(name, FOLDER, dir_fd=folder)
            try:
                overlay.dress(fd, entry.opaque, entry.attributes)
                draft.finish_entry(fd, entry.mode, 0)
            finally:
                os.close(fd)


def _link(source: LayerTree, entry: LayerEntry, name: str, folder: int, draft: LayerDraft) -> int:
    """Returns the file's time of change."""
    theirs, there = source.parent(entry.path)
    mtime_ns = os.stat(there, dir_fd=theirs, follow_symlinks=False).st_mtime_ns
    try:
        os.link(there, name, src_dir_fd=theirs, dst_dir_fd=folder, follow_symlinks=False)
        return mtime_ns
    except OSError as error:
        # A file has 65,000 names at most, none but one in some places, and none on another file system.
        if error.errno not in (errno.EMLINK, errno.EPERM, errno.EXDEV):
            raise
    old, new = source.open(entry.path), os.open(name, CREATE, 0o600, dir_fd=folder)
    try:
        copy(old, new)
        overlay.dress(new, False, entry.attributes)
        return draft.finish_entry(new, entry.mode, mtime_ns)
    finally:
        os.close(old)
        os.close(new)
