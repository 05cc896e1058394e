"""A weight store: `anchor-N/` and `delta-N/`, each with shards and a manifest, and one index; in a folder or in a bucket.

    index.json          what is published (`etude.learn.weights.index`)
    anchor-0/           manifest-<sha256>.json, shard-00000-<sha256>.bin, ...
    delta-1/            manifest-<sha256>.json, shard-00000-<sha256>.bin, ...

What the index names is whole: shards are put down first, their manifest next and the index last. A kill in between leaves
objects that no index names; the next writer removes them. Every object but the index is named by its content, so what the
index names is never overwritten by any writer.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from etude.learn.weights.bucket import ObjectBucket, open_bucket
from etude.learn.weights.errors import CorruptShard, MissingShard
from etude.learn.weights.index import INDEX, IndexEntry, StoreIndex
from etude.learn.weights.manifest import WeightManifest


class WeightStore:
    """What readers see. Many may read while one writes (`etude.learn.weights.publisher`)."""

    def __init__(self, place: Path | str | ObjectBucket) -> None:
        self.bucket: ObjectBucket = open_bucket(place) if isinstance(place, Path | str) else place

    @property
    def url(self) -> str:
        return self.bucket.url

    def index(self) -> StoreIndex:
        """What is published; empty if nothing is yet. Raises CorruptShard if the index is not one."""
        return self.tagged_index()[0]

    def tagged_index(self) -> tuple[StoreIndex, str | None]:
        """The index and the tag under which a writer may replace it (None: there is none yet)."""
        try:
            data, tag = self.bucket.get(INDEX)
        except MissingShard:
            return StoreIndex(), None
        return StoreIndex.from_json(data, f"{self.url}/{INDEX}"), tag

    def manifest(self, entry: IndexEntry) -> WeightManifest:
        return self.checked(entry, self.bucket.get(entry.manifest_key)[0])

    @staticmethod
    def checked(entry: IndexEntry, data: bytes) -> WeightManifest:
        """The manifest of an entry from its bytes. Raises CorruptShard where they are not what was published."""
        if hashlib.sha256(data).hexdigest() != entry.manifest_sha256:
            raise CorruptShard(f"{entry.manifest_key} is not the file that was published; fetch it again")
        manifest = WeightManifest.from_json(data.decode())
        if IndexEntry.of(manifest, entry.manifest_sha256) != entry:
            raise CorruptShard(f"{entry.manifest_key} tells of {manifest.name}, the index of {entry}; use an anchor")
        return manifest

    def shard(self, manifest: WeightManifest, number: int) -> bytes:
        """The bytes of one shard, unchecked (the codec checks). Raises MissingShard."""
        return self.bucket.get(f"{manifest.name}/{manifest.shards[number].file}")[0]
