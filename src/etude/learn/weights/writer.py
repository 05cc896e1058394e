"""The writing side of a store: one at a time, and the newest one wins.

Opening claims the store: the index is replaced by itself under this writer's name. An older writer that still lives (a
trainer thought dead behind a broken line) finds another tag at its next commit and gets Overtaken; nothing it wrote counts.
So leftovers may be removed right after the claim. Where a server ignores conditions, the claim only narrows the gap: see
`etude.learn.weights.s3`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace

from etude.learn.weights.errors import StoreTakenOver
from etude.learn.weights.index import INDEX, IndexEntry, StoreIndex
from etude.learn.weights.manifest import ShardRecord, WeightManifest
from etude.learn.weights.store import WeightStore


class StoreWriter:
    """The one writer of a store; `index` is the last committed one. `spared`: folders that are not swept though the index does not name
    them; None: none is swept."""

    def __init__(self, store: WeightStore, spared: Callable[[], Collection[str] | None] = lambda: ()) -> None:
        self.store = store
        self._spared = spared
        self._name = secrets.token_hex(8)
        self.index, self._tag = store.tagged_index()
        self.commit(self.index)

    def put_shard(self, name: str, record: ShardRecord, blob: bytes) -> None:
        """Puts a shard of the anchor or delta `name` down. From any thread."""
        self.store.bucket.put(f"{name}/{record.file}", blob)

    def put_manifest(self, manifest: WeightManifest) -> IndexEntry:
        """Puts the manifest down, after all its shards; it counts once `commit` names the entry."""
        data = manifest.to_json().encode()
        entry = IndexEntry.of(manifest, hashlib.sha256(data).hexdigest())
        self.store.bucket.put(entry.manifest_key, data)
        return entry

    def commit(self, index: StoreIndex) -> None:
        """Makes `index` the truth, then removes what it no longer names. Raises Overtaken if another writer took over."""
        index = replace(index, writer=self._name, serial=self.index.serial + 1)
        try:
            self._tag = self.store.bucket.replace(INDEX, index.to_json(), self._tag)
        except StoreTakenOver:
            found, tag = self.store.tagged_index()
            if found.writer != self._name:
                raise StoreTakenOver(
                    f"{self.store.url} was taken over by the writer {found.writer or 'of an older index'} (serial "
                    f"{found.serial}); this one, {self._name}, must stop: nothing it wrote since then counts"
                ) from None
            # Else it is ours: the answer was lost, to a first attempt of this index or to an earlier one that was given up.
            self._tag = tag if found == index else self.store.bucket.replace(INDEX, index.to_json(), tag)
        self.index = index
        self.sweep()

    def sweep(self) -> None:
        """Removes anchors and deltas that the index does not name: retired, or left by a writer that was killed."""
        spared = self._spared()
        if spared is None:
            return
        names = {*spared, *(entry.name for entry in self.index.entries)}
        for folder in self.store.bucket.folders():
            if folder.startswith(("anchor-", "delta-", ".partial-")) and folder not in names:
                self.store.bucket.remove(folder)  # a reader may hold it open; the next commit tries again
