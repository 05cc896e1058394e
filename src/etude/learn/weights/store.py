"""A weight store: `anchor-N/` and `delta-N/`, each with shards and a manifest, and one index; in a folder or in a bucket.

    index.json          what is published (`StoreIndex`)
    anchor-0/           manifest-<sha256>.json, shard-00000-<sha256>.bin, ...
    delta-1/            manifest-<sha256>.json, shard-00000-<sha256>.bin, ...

What the index names is whole: shards are put down first, their manifest next and the index last. A kill in between leaves
objects that no index names; the next writer removes them. Every object but the index is named by its content, so what the
index names is never overwritten by any writer.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from etude.learn.weights.bucket import ObjectBucket, open_bucket
from etude.learn.weights.errors import CorruptShard, ForeignFormat, MissingShard, StoreTakenOver, Unreachable
from etude.learn.weights.path import Edge
from etude.learn.weights.state import Cut, digest_of_table

# What an anchor or a delta consists of: the table of tensors and the table of shards, as JSON next to the shard files.


# 2: lanes cut into shards of equal size, changed elements by their gaps, XXH3 of tensors, names that carry the content.
FORMAT = 2


@dataclass(frozen=True)
class ShardRecord:
    """One file: zstd frames, one after another (`etude.learn.weights.codec`). Its name carries its content's digest, so that
    no other writer's file can take its place."""

    file: str
    sha256: str
    item_bytes: int  # width of an element; a shard holds tensors of one width
    first: int  # where its elements begin within the lane of that width
    elements: int
    changed: int | None  # elements that differ from the base's; None: the dense form, which tells of all
    frames: tuple[int, ...]  # compressed bytes of each plane, lowest byte first

    @property
    def bytes(self) -> int:
        return sum(self.frames)

    @property
    def cut(self) -> Cut:
        return Cut(self.item_bytes, self.first, self.elements)


def check_format(found: object, where: str) -> None:
    """Raises ForeignFormat unless `found` is the format that this code writes."""
    if found != FORMAT:
        raise ForeignFormat(
            f"{where} is of format {found}, this reads format {FORMAT}: read it with the version of etude that wrote it, or "
            "publish into a new store"
        )


@dataclass(frozen=True)
class TensorRecord:
    """One tensor of the result; `changed` says whether its bits are other than the base's."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    changed: bool

    @property
    def row(self) -> tuple[str, str, tuple[int, ...]]:
        return self.name, self.dtype, self.shape


@dataclass(frozen=True)
class WeightManifest:
    """An anchor (`base` is None) or a delta from version `base` to `version`."""

    version: int
    base: int | None
    digest: str  # of the state at `version`
    base_digest: str | None
    raw_bytes: int  # of the whole state
    tensors: tuple[TensorRecord, ...]
    shards: tuple[ShardRecord, ...]

    @property
    def name(self) -> str:
        return f"anchor-{self.version}" if self.base is None else f"delta-{self.version}"

    @property
    def bytes(self) -> int:
        """Bytes of all shards: what a receiver fetches."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def changed(self) -> tuple[TensorRecord, ...]:
        return tuple(record for record in self.tensors if record.changed)

    def check_shard(self, number: int, blob: bytes) -> None:
        """Raises CorruptShard unless `blob` is shard `number` as it was written."""
        shard = self.shards[number]
        if hashlib.sha256(blob).hexdigest() != shard.sha256:
            raise CorruptShard(
                f"{self.name}/{shard.file}: these {len(blob)} bytes do not have the sha256 {shard.sha256[:12]}…; fetch it again"
            )

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> WeightManifest:
        """Raises CorruptShard if the text is no manifest or contradicts itself."""
        try:
            data = json.loads(text)
            check_format(data.pop("format"), "a manifest")
            tensors = tuple(TensorRecord(**{**t, "shape": tuple(t["shape"])}) for t in data.pop("tensors"))
            shards = tuple(ShardRecord(**{**s, "frames": tuple(s["frames"])}) for s in data.pop("shards"))
            manifest = cls(tensors=tensors, shards=shards, **data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptShard(f"this is no manifest of weights ({error}); fetch it again or use an anchor") from error
        table = digest_of_table((t.name, t.dtype, t.shape, t.digest) for t in tensors)
        if table != manifest.digest:
            raise CorruptShard(f"manifest {manifest.name} contradicts its own digest; fetch it again or use an anchor")
        return manifest


# The index: the one object of a store that is ever replaced, and the only truth about what is published.
#
#     {"format": 2, "writer": ..., "serial": ..., "entries": [{"version", "base", "bytes", "raw_bytes", "digest", "manifest_sha256"}, ...]}
#
# Each replacement has the next serial. `writer` may make it: a new publisher puts itself there before it does
# anything else, and so shuts out the one before, should that still live (`StoreWriter`).


INDEX = "index.json"


@dataclass(frozen=True)
class IndexEntry:
    """One anchor or delta of the index; `digest` is that of the state at `version`."""

    version: int
    base: int | None
    bytes: int
    raw_bytes: int
    digest: str
    manifest_sha256: str

    @classmethod
    def of(cls, manifest: WeightManifest, manifest_sha256: str) -> IndexEntry:
        return cls(
            manifest.version, manifest.base, manifest.bytes, manifest.raw_bytes, manifest.digest, manifest_sha256
        )

    @property
    def edge(self) -> Edge:
        return Edge(self.version, self.base, self.bytes)

    @property
    def name(self) -> str:
        return self.edge.name

    @property
    def manifest_key(self) -> str:
        """Where its manifest lies; the name carries the content's digest, as the shards' do."""
        return f"{self.name}/manifest-{self.manifest_sha256[:12]}.json"


@dataclass(frozen=True)
class StoreIndex:
    """All that is published, in the order it was."""

    entries: tuple[IndexEntry, ...] = ()
    writer: str = ""
    serial: int = 0

    @property
    def newest(self) -> int | None:
        return max((entry.version for entry in self.entries), default=None)

    def digest(self, version: int) -> str | None:
        """Digest of the state at `version`, if an anchor or delta leads there."""
        return next((entry.digest for entry in self.entries if entry.version == version), None)

    def entry(self, edge: Edge) -> IndexEntry:
        return next(entry for entry in self.entries if entry.edge == edge)

    def without_after(self, version: int) -> StoreIndex:
        """The index as it was when `version` was the newest. Raises Unreachable if it never was."""
        if self.digest(version) is None:
            held = sorted({entry.version for entry in self.entries})
            raise Unreachable(f"version {version} is not in the store; it holds {held}")
        return replace(self, entries=tuple(entry for entry in self.entries if entry.version <= version))

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes, where: str) -> StoreIndex:
        """Raises ForeignFormat, or CorruptShard if the bytes are no index; `where` names it for the reader."""
        try:
            document = json.loads(data)
            check_format(document.pop("format"), where)
            entries = tuple(IndexEntry(**entry) for entry in document.pop("entries"))
            index = cls(entries, **document)
            # Reading a field of each kind: a document of the right keys may still hold the wrong things.
            if len({entry.edge for entry in entries}) != len(entries) or index.serial < 0:
                raise ValueError("an anchor or delta is named twice")
            for entry in entries:
                if entry.base is not None and entry.base >= entry.version:
                    raise ValueError(f"{entry.name} starts from the later version {entry.base}")
            return index
        except ForeignFormat:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptShard(f"{where} is no index of a weight store ({error}); publish into a new store") from error


class WeightStore:
    """What readers see. Many may read while one writes (`StoreWriter`)."""

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
        return self.check_manifest(entry, self.bucket.get(entry.manifest_key)[0])

    @staticmethod
    def check_manifest(entry: IndexEntry, data: bytes) -> WeightManifest:
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


# The writing side of a store: one at a time, and the newest one wins.
#
# Opening claims the store: the index is replaced by itself under this writer's name. An older writer that still lives
# (a trainer thought dead behind a broken line) finds another tag at its next commit and gets Overtaken; nothing it
# wrote counts. So leftovers may be removed right after the claim. Where a server ignores conditions, the claim only
# narrows the gap: see `etude.learn.weights.s3`.


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
