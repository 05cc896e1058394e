"""The index: the one object of a store that is ever replaced, and the only truth about what is published.

    {"format": 2, "writer": ..., "serial": ..., "entries": [{"version", "base", "bytes", "raw_bytes", "digest", "manifest_sha256"}, ...]}

Each replacement has the next serial. `writer` may make it: a new publisher puts itself there before it does
anything else, and so shuts out the one before, should that still live (`etude.learn.weights.publisher`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from etude.learn.weights.errors import CorruptShard, ForeignFormat, Unreachable
from etude.learn.weights.manifest import FORMAT, WeightManifest, check_format
from etude.learn.weights.path import Edge

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
