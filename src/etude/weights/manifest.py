"""What an anchor or a delta consists of: the table of tensors and the table of shards, as JSON beside the shard files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from etude.weights.digest import digest_of_table
from etude.weights.errors import CorruptShard

FORMAT = 1


@dataclass(frozen=True)
class ShardRecord:
    """One file: the byte planes of its elements, each a zstd frame, one after another."""

    file: str
    sha256: str
    item_bytes: int  # width of an element; a shard holds tensors of one width
    elements: int
    planes: tuple[int, ...]  # compressed bytes of each plane, lowest byte first

    @property
    def bytes(self) -> int:
        return sum(self.planes)


@dataclass(frozen=True)
class TensorRecord:
    """One tensor of the result. `shard` is None if its bits are those of the base."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    shard: int | None
    start: int  # first element within the shard

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class Manifest:
    """An anchor (`base` is None) or a delta from version `base` to `version`."""

    version: int
    base: int | None
    sha256: str  # of the state at `version`
    base_sha256: str | None
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
        return tuple(record for record in self.tensors if record.shard is not None)

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
    def from_json(cls, text: str) -> Manifest:
        """Raises CorruptShard if the text is no manifest or contradicts itself."""
        try:
            data = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError(f"not format {FORMAT}")
            tensors = tuple(TensorRecord(**{**t, "shape": tuple(t["shape"])}) for t in data.pop("tensors"))
            shards = tuple(ShardRecord(**{**s, "planes": tuple(s["planes"])}) for s in data.pop("shards"))
            manifest = cls(tensors=tensors, shards=shards, **data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptShard(f"this is no manifest of weights ({error}); fetch it again or use an anchor") from error
        table = digest_of_table((t.name, t.dtype, t.shape, t.sha256) for t in tensors)
        if table != manifest.sha256:
            raise CorruptShard(f"manifest {manifest.name} contradicts its own digest; fetch it again or use an anchor")
        return manifest
