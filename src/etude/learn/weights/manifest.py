"""What an anchor or a delta consists of: the table of tensors and the table of shards, as JSON next to the shard files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from etude.learn.weights.digest import digest_of_table
from etude.learn.weights.errors import CorruptShard, ForeignFormat
from etude.learn.weights.layout import Cut

# 2: lanes cut into shards of equal size, changed elements by their gaps, XXH3 of tensors, names that carry the content.
FORMAT = 2


@dataclass(frozen=True)
class ShardRecord:
    """One file: zstd frames, one after another (`etude.learn.weights.shard`). Its name carries its content's digest, so that
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
