"""A store of layers in a folder, shared by any number of processes.

    layers/<32 digits of the digest>/   manifest, seal, tree/        immutable; `tree` in overlay form (also in memory: medium.py)
    snapshots/<digest>                  the record of a chain
    names/<name>                        a digest
    live/<process>/                     what a process makes and holds (lease.py)
    trash/                              what a collection has taken away and is removing

Promises: what is in `layers` is whole (it is renamed into place); what is served matches its digest, or LayerCorrupt is raised; what
a living process holds, or a name leads to, is never collected. A process that is killed leaves nothing but its folder under `live`.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from etude.sandbox.layers import names as names_
from etude.sandbox.layers import verification
from etude.sandbox.layers.backing import StoreBacking, memory_backing
from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.draft import LayerDraft, Owner, translate_full_disk
from etude.sandbox.layers.errors import CorruptLayer, UnknownSnapshot
from etude.sandbox.layers.lease import Lease
from etude.sandbox.layers.manifest import LayerManifest
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.tree import FOLDER
from etude.sandbox.layers.tree_import import TreeImporter
from etude.sandbox.layers.view import LayerView

if TYPE_CHECKING:
    from etude.sandbox.layers.store import LayerStore

_PREFIX = re.compile(r"[0-9a-f]{8,64}")
_LOOKED_AT_ONCE = (
    1000  # entries; a larger layer is looked at once a process: stat of an image takes longer than a sandbox' birth
)


class PinnedSnapshot:
    """A context manager; `release` is idempotent."""

    def __init__(self, store: LayerStore, snapshot: Snapshot) -> None:
        self._store, self.snapshot = store, snapshot
        self._held = True

    @property
    def folders(self) -> tuple[Path, ...]:
        """The layers' trees, topmost first, as an overlay takes them: each once, since the kernel refuses a folder named twice (ELOOP).

        What a layer says and hides, its topmost place says and hides of everything below it, so its lower places change nothing.
        """
        return tuple(self._store.layer(digest) / "tree" for digest in dict.fromkeys(self.snapshot.layers))

    def pin_again(self) -> PinnedSnapshot:
        """One more hold of the same snapshot."""
        self._store.lease.hold(self.snapshot.digest)
        return PinnedSnapshot(self._store, self.snapshot)

    def release(self) -> None:
        if self._held:
            self._held = False
            self._store.lease.release(self.snapshot.digest)

    def __enter__(self) -> PinnedSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class LayerStore:
    """`owner`: whose the files are to be, where not the caller's own."""

    def __init__(self, root: Path, owner: Owner | None = None, *, in_memory: bool = False) -> None:
        """`in_memory`: layers that no caller asked to keep may be in memory, where there is a file system for that."""
        self.root, self.owner = root, owner
        self.disk = StoreBacking(root)
        self.layers, self.snapshots = self.disk.layers, root / "snapshots"
        self.live, self.trash = self.disk.live, self.disk.trash
        self.names = names_.SnapshotNames(root / "names")
        for folder in (self.snapshots, root / "names"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._looked_at: set[str] = set()
        self.memory: StoreBacking | None = None
        if in_memory:
            with self.lock(fcntl.LOCK_SH):
                self.memory = memory_backing(root)

    @property
    def backings(self) -> list[StoreBacking]:
        return [self.disk] if self.memory is None else [self.disk, self.memory]

    # ---- making

    def ingest(
        self, upper: int, below: Snapshot, *, bounds: Bounds = Bounds(), name: str = "", transient: bool = False
    ) -> PinnedSnapshot:
        """A snapshot of `below` with an upper folder (its descriptor) on top, held. The folder must not change meanwhile.

        `passing`: it is never looked up by its digest later, so it goes with its last hold. Raises Hostile, StoreFull.
        """
        with self.drafting(self._medium(bounds) if transient else self.disk) as draft:
            seen = functools.cache(lambda: LayerView.of(self, below).entries)  # rarely needed
            TreeImporter(draft, bounds, lambda path: path in seen()).take(upper)
            only_folders = all(entry.kind == "dir" and not entry.opaque for entry in draft.entries)
            changed = not only_folders or any(not entry.same_in(seen()) for entry in draft.entries)
            return self.commit(draft if changed else None, below, name=name, transient=transient)

    @contextmanager
    def drafting(self, backing: StoreBacking | None = None) -> Iterator[LayerDraft]:
        """A new layer, removed at the end unless `commit` took it. A full disk raises StoreFull."""
        backing = backing or self.disk
        with translate_full_disk(backing.root):
            draft = LayerDraft(backing.lease.draft_folder(), self.owner, backing.layer)
            try:
                yield draft
            finally:
                draft.close()

    def add(self, draft: LayerDraft) -> str:
        """Its digest, the draft renamed into place. The store must be locked: what no snapshot names may be collected."""
        manifest = draft.finish()
        digest = manifest.digest
        try:
            draft.folder.rename(draft.place(digest))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self._look(digest)  # the same files are here already
        return digest

    def commit(
        self, draft: LayerDraft | None, below: Snapshot, *, name: str = "", transient: bool = False
    ) -> PinnedSnapshot:
        """`below` with the draft on top, if there is one: recorded, named, and held."""
        if name:
            names_.require_name(name)
        with self.lock(fcntl.LOCK_SH):
            snapshot = below.with_layer(self.add(draft)) if draft is not None else below
            return self.record(snapshot, name=name, transient=transient)

    def record(self, snapshot: Snapshot, *, name: str = "", transient: bool = False) -> PinnedSnapshot:
        """Its layers must be there, and the store locked or its layers held."""
        if not transient:
            self._keep(snapshot)
        path = self.snapshots / snapshot.digest
        if not path.exists():
            fresh = self.snapshots / f".{os.urandom(6).hex()}"
            fresh.write_bytes(snapshot.text())
            if transient:
                os.utime(fresh, (0, 0))  # older than any patience of a collection
            fresh.replace(path)
        elif not transient:
            os.utime(path)
        self.lease.hold(snapshot.digest)
        if name:
            self.names.give(name, snapshot.digest)
        return PinnedSnapshot(self, snapshot)

    # ---- finding

    def resolve(self, ref: str) -> Snapshot:
        """By name, digest, or the first eight or more digits of one. Raises UnknownSnapshot, LayerCorrupt."""
        digest = self.names.find(ref) or (ref if names_.is_digest(ref) else self._by_prefix(ref))
        try:
            text = (self.snapshots / digest).read_bytes()
        except OSError:
            raise UnknownSnapshot(f"no snapshot or image {ref!r} in {self.root}{self._known()}") from None
        try:
            snapshot = Snapshot.parse(text)
        except (ValueError, KeyError, TypeError):
            snapshot = Snapshot()
        if snapshot.digest != digest:
            raise CorruptLayer(f"snapshot {digest[:12]}: its record is not what was written; remove it")
        return snapshot

    def hold(self, ref: str) -> PinnedSnapshot:
        """Its layers, checked and safe from collection until released. Raises UnknownSnapshot, LayerCorrupt."""
        with self.lock(fcntl.LOCK_SH):
            snapshot = self.resolve(ref)
            first = self.lease.hold(snapshot.digest)
            with suppress(FileNotFoundError):
                if os.stat(self.snapshots / snapshot.digest).st_mtime:
                    os.utime(self.snapshots / snapshot.digest)
        held = PinnedSnapshot(self, snapshot)
        try:
            if first:
                for digest in snapshot.layers:
                    self._look(digest)
        except BaseException:
            held.release()
            raise
        return held

    def layer(self, digest: str) -> Path:
        if self.memory is not None and (there := self.memory.layer(digest)).is_dir():
            return there
        return self.disk.layer(digest)

    def manifest(self, digest: str) -> LayerManifest:
        """Raises LayerCorrupt."""
        return verification.read_manifest(self.layer(digest), digest)

    @property
    def lease(self) -> Lease:
        return self.disk.lease

    def close(self) -> None:
        """All holds of this object end."""
        if self.memory is not None:
            with self.lock(fcntl.LOCK_EX):
                self.memory.close_and_remove()
            self.memory = None
        self.disk.close()

    def __enter__(self) -> LayerStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def lock(self, how: int) -> Iterator[None]:
        """Shared: nothing is collected meanwhile. Exclusive: nothing is made or taken."""
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
            yield
        finally:
            os.close(fd)

    def _medium(self, bounds: Bounds) -> StoreBacking:
        """Memory, unless this layer could fill it."""
        fits = self.memory is not None and self.memory.free_bytes > bounds.max_bytes
        return self.memory if fits and self.memory is not None else self.disk

    def _keep(self, snapshot: Snapshot) -> None:
        """Copy to the disk what only memory has of it."""
        for digest in snapshot.layers:
            if self.memory is None or self.disk.layer(digest).is_dir():
                continue
            tree = os.open(self.layer(digest) / "tree", FOLDER)
            try:
                with self.drafting() as draft:
                    TreeImporter(draft, Bounds(), lambda path: True).take(tree)
                    self.add(draft)
            finally:
                os.close(tree)

    def _look(self, digest: str) -> None:
        if digest in self._looked_at:
            return
        if verification.check_layer(self.layer(digest), digest) > _LOOKED_AT_ONCE:
            self._looked_at.add(digest)

    def _by_prefix(self, ref: str) -> str:
        found = [name for name in os.listdir(self.snapshots) if name.startswith(ref)] if _PREFIX.fullmatch(ref) else []
        return found[0] if len(found) == 1 else "-"

    def _known(self) -> str:
        known = list(self.names.all())[:8]
        return f"; there are {', '.join(known)}" if known else ", which has none with a name"
