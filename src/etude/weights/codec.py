"""Lossless deltas between two states: XOR of bit patterns, byte planes, zstd (promise 7).

    delta = encode(new, base)      new = decode(delta, base)      base = decode(delta, new, rewind=True)

An anchor is the delta from nothing (zeros). XOR is its own inverse, so a delta can be walked both ways: a receiver that is
ahead of the sender's base steps back through the delta it came by, instead of keeping old states. `decode` answers with the
bits that were encoded or raises: every file is checked by sha256 before use and the whole result after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from etude.weights.digest import State, bits, digest_of_table, dtype_name, state_digest, tensor_digest
from etude.weights.errors import CorruptShard, CorruptTensor, LayoutMismatch, WrongBase
from etude.weights.manifest import Manifest, ShardRecord, TensorRecord
from etude.weights.planes import pack, unpack

# Large enough that zstd and file overhead vanish, small enough to fetch and check many at once.
SHARD_BYTES = 64 << 20


class _ShardWriter:
    """Collects the XOR of changed tensors into shards of one element width each."""

    def __init__(self, shard_bytes: int) -> None:
        self.shards: list[ShardRecord | None] = []
        self.blobs: list[bytes] = []
        self._limit = shard_bytes
        self._open: dict[int, tuple[int, list[np.ndarray], int]] = {}  # item bytes -> (shard, pieces, bytes so far)

    def add(self, piece: np.ndarray, item_bytes: int) -> tuple[int, int]:
        """Where the piece went: (shard, first element)."""
        shard, pieces, size = self._open.get(item_bytes, (len(self.shards), [], 0))
        if not pieces:
            self.shards.append(None)
            self.blobs.append(b"")
        pieces.append(piece)
        self._open[item_bytes] = (shard, pieces, size + piece.nbytes)
        if size + piece.nbytes >= self._limit:
            self._flush(item_bytes)
        return shard, size // item_bytes

    def close(self) -> tuple[tuple[ShardRecord, ...], list[bytes]]:
        for item_bytes in list(self._open):
            self._flush(item_bytes)
        return tuple(shard for shard in self.shards if shard is not None), self.blobs

    def _flush(self, item_bytes: int) -> None:
        shard, pieces, size = self._open.pop(item_bytes)
        frames = pack(np.concatenate(pieces), item_bytes)
        blob = b"".join(frames)
        sha256 = hashlib.sha256(blob).hexdigest()
        lengths = tuple(len(frame) for frame in frames)
        self.shards[shard] = ShardRecord(f"shard-{shard:05d}.bin", sha256, item_bytes, size // item_bytes, lengths)
        self.blobs[shard] = blob


def encode(
    state: State,
    *,
    version: int,
    base: State | None = None,
    base_version: int | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> tuple[Manifest, list[bytes]]:
    """The anchor of `state`, or its delta from `base`: the manifest, and the bytes of each shard.

    Raises LayoutMismatch if the two states have different tensors.
    """
    if base is not None:
        _same_layout(state, base)
    writer = _ShardWriter(shard_bytes)
    records = []
    for name in sorted(state):
        new, shard, start = bits(state[name]), None, 0
        if base is not None:
            new = new ^ bits(base[name])
        if base is None or new.any():
            shard, start = writer.add(new, state[name].element_size())
        tensor = state[name]
        digest = tensor_digest(tensor)
        records.append(TensorRecord(name, dtype_name(tensor.dtype), tuple(tensor.shape), digest, shard, start))
    shards, blobs = writer.close()
    manifest = Manifest(
        version=version,
        base=base_version if base is not None else None,
        sha256=digest_of_table((r.name, r.dtype, r.shape, r.sha256) for r in records),
        base_sha256=state_digest(base) if base is not None else None,
        raw_bytes=sum(t.numel() * t.element_size() for t in state.values()),
        tensors=tuple(records),
        shards=shards,
    )
    return manifest, blobs


def decode(
    manifest: Manifest, read: Callable[[int], bytes], base: State | None = None, *, rewind: bool = False
) -> dict[str, Tensor]:
    """The state the manifest names (or, with `rewind`, the one it was made from, given the one it names as `base`).

    `read(i)` gives the bytes of shard i. Unchanged tensors are shared with `base`. Raises a WeightsError that names the
    shard or tensor at fault; `base` is never written to.
    """
    if manifest.base is not None:
        if base is None:
            raise WrongBase(f"{manifest.name} needs version {manifest.base}; none is at hand: start from an anchor")
        _fits(manifest, base)
    source = None if manifest.base is None else base
    state = dict(source) if source is not None else {}
    shard, data = -1, np.empty(0, np.uint8)
    for record in sorted(manifest.changed, key=lambda r: r.shard or 0):
        if record.shard != shard:
            shard = record.shard or 0
            data = _open_shard(manifest, shard, read(shard))
        width = manifest.shards[shard].item_bytes
        piece = data[record.start * width : (record.start + record.elements) * width]
        old = source[record.name] if source is not None else None
        state[record.name] = _restore(record, piece, old)
    _check(manifest, state, source, rewind)
    return state


def _restore(record: TensorRecord, piece: np.ndarray, old: Tensor | None) -> Tensor:
    new = torch.empty(record.shape, dtype=getattr(torch, record.dtype))
    if old is None:
        bits(new)[:] = piece  # `bits` shares memory with a contiguous tensor
    else:
        np.bitwise_xor(piece, bits(old), out=bits(new))
    return new


def _open_shard(manifest: Manifest, number: int, blob: bytes) -> np.ndarray:
    shard = manifest.shards[number]
    manifest.check_shard(number, blob)
    frames, at = [], 0
    for length in shard.planes:
        frames.append(blob[at : at + length])
        at += length
    try:
        return unpack(frames, shard.elements)
    except ValueError as error:
        raise CorruptShard(
            f"{manifest.name}/{shard.file}: {error}; manifest and shard do not belong together"
        ) from error


def _check(manifest: Manifest, state: State, base: State | None, rewind: bool) -> None:
    """The result is bit-identical to what was encoded, or the reason why not is raised."""
    wanted, came_from = manifest.sha256, manifest.base_sha256
    if rewind:
        wanted, came_from = came_from, wanted
    digests = {name: tensor_digest(tensor) for name, tensor in state.items()}
    rows = ((n, dtype_name(t.dtype), tuple(t.shape), digests[n]) for n, t in state.items())
    if digest_of_table(rows) == wanted:
        return
    if base is not None and state_digest(base) != came_from:
        version = manifest.version if rewind else manifest.base
        raise WrongBase(
            f"{manifest.name}: the state at hand is not version {version}, which the delta connects: start from an anchor"
        )
    wrong = [] if rewind else [r.name for r in manifest.tensors if digests[r.name] != r.sha256]
    raise CorruptTensor(f"{manifest.name}: {', '.join(wrong[:3]) or 'the state'} came out different; use an anchor")


def _rows(state: State) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    return ((name, dtype_name(t.dtype), tuple(t.shape)) for name, t in sorted(state.items()))


def _same_layout(new: State, base: State) -> None:
    odd = sorted(set(_rows(new)) ^ set(_rows(base)))
    if odd:
        raise LayoutMismatch(
            f"{odd[0]} is on one side only ({len(odd)} such): a delta needs equal layouts, send an anchor"
        )


def _fits(manifest: Manifest, base: State) -> None:
    odd = sorted({(r.name, r.dtype, r.shape) for r in manifest.tensors} ^ set(_rows(base)))
    if odd:
        raise LayoutMismatch(f"{manifest.name}: {odd[0]} is on one side only ({len(odd)} such); start from an anchor")
