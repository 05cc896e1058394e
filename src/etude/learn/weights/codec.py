"""Lossless deltas between two states: the elements that changed, XOR of their bits, zstd (promise 7).

    manifest = encode(new, put, base=base)      new = decode(manifest, read, base)      base = decode(manifest, read, new, rewind=True)

An anchor is the delta from nothing (zeros). XOR is its own inverse, so a delta can be walked both ways: a receiver that is
ahead of the sender's base steps back through the delta it came by, instead of keeping old states. `decode` answers with the
bits that were encoded or raises: every shard is checked by sha256 before use and the whole result by its digest after.
Shards are independent of one another: `workers` threads make or fetch and apply them side by side, each holding one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
import zstandard
from torch import Tensor

from etude.core.trace.bounded_zstd import decompress
from etude.learn.weights.errors import CorruptShard, CorruptTensor, LayoutMismatch, WrongBase
from etude.learn.weights.state import (
    Cut,
    Layout,
    Piece,
    State,
    blanks,
    digest_of_table,
    dtype_name,
    elements,
    state_digest,
    tensor_digest,
)
from etude.learn.weights.store import ShardRecord, TensorRecord, WeightManifest

# Threads for what is independent: shards, tensors. numpy, zstd and the hashes leave the interpreter lock while they work.


T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """`count` threads, or with one none at all: the caller's own. The first error stops what has not begun."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"{count} workers; give at least 1")
        self._pool = ThreadPoolExecutor(count, "weights") if count > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results in the order of the items. Raises the first error met."""
        return map(work, items) if self._pool is None else self._pool.map(work, items)


# One shard: the difference of one cut of a lane, as zstd frames, in whichever of two forms suits it.
#
# sparse    four planes of gaps between changed elements (uint32), then the planes of their XOR
# dense     the planes of the XOR of all elements (of an anchor: of the elements themselves)


# Measured on bf16: sparse is smaller and faster at every share up to a quarter; beyond, gaps cost what zeros would.
SPARSE_SHARE = 1 / 4
GAP_BYTES = 4


def encode_shard(
    number: int, cut: Cut, new: Sequence[np.ndarray], old: Sequence[np.ndarray] | None
) -> tuple[ShardRecord, bytes, list[bool]] | None:
    """The shard that leads from the pieces `old` (None: from nothing) to `new`, and which pieces it touches; None if none."""
    if old is None:
        return *_sealed(number, cut, None, pack(_joined(new), cut.width)), [True] * len(new)
    found = [changes(n, o) for n, o in zip(new, old, strict=True)]
    touched = [len(positions) > 0 for positions, _ in found]
    count = sum(len(positions) for positions, _ in found)
    if not count:
        return None
    if count > SPARSE_SHARE * cut.elements:
        frames = pack(_joined([n ^ o for n, o in zip(new, old, strict=True)]), cut.width)
        return *_sealed(number, cut, None, frames), touched
    starts = np.cumsum([0, *(len(piece) for piece in new)])
    positions = np.concatenate([p + start for (p, _), start in zip(found, starts, strict=False)])
    values = np.concatenate([values for _, values in found])
    frames = pack(gaps(positions).view(np.uint8), GAP_BYTES) + pack(values.view(np.uint8), cut.width)
    return *_sealed(number, cut, count, frames), touched


def apply_shard(record: ShardRecord, blob: bytes, pieces: Sequence[Piece], targets: Sequence[np.ndarray]) -> None:
    """XORs the shard into the targets, each the elements of one piece of its cut (zeros before an anchor's).

    Raises ValueError if the bytes are not of that form; targets may then be half written.
    """
    frames, at = [], 0
    for length in record.frames:
        frames.append(blob[at : at + length])
        at += length
    if record.changed is None:
        data = unpack(frames, record.elements).view(f"u{record.item_bytes}")
        for piece, target in zip(pieces, targets, strict=True):
            target ^= data[piece.of_cut]
        return
    spans = unpack(frames[:GAP_BYTES], record.changed).view(np.uint32)
    values = unpack(frames[GAP_BYTES:], record.changed).view(f"u{record.item_bytes}")
    positions = positions_of(spans, record.elements)
    edges = np.searchsorted(positions, [*(piece.at for piece in pieces), record.elements])
    for piece, target, (first, last) in zip(pieces, targets, pairwise(edges), strict=True):
        target[positions[first:last] - piece.at] ^= values[first:last]


def _joined(pieces: Sequence[np.ndarray]) -> np.ndarray:
    whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return np.ascontiguousarray(whole).view(np.uint8)


def _sealed(number: int, cut: Cut, changed: int | None, frames: list[bytes]) -> tuple[ShardRecord, bytes]:
    blob = b"".join(frames)
    sha256 = hashlib.sha256(blob).hexdigest()
    lengths = tuple(len(frame) for frame in frames)
    name = f"shard-{number:05d}-{sha256[:12]}.bin"
    return ShardRecord(name, sha256, cut.width, cut.first, cut.elements, changed, lengths), blob


# A step of RL changes a few in a hundred bf16 weights, scattered. The distances between them take half the bytes of an XOR plane of zeros, and a
# tenth of the time, because what did not change is not compressed. XOR instead of the new value makes the delta work in both directions.

# Elements compared at once: XOR, mask and positions stay in the second-level cache.
BLOCK = 1 << 17


def changes(new: np.ndarray, old: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (K,) int64, ascending, at which two arrays (N,) of unsigned integers differ, and the XOR there (K,)."""
    xor, differs = np.empty(BLOCK, new.dtype), np.empty(BLOCK, bool)
    positions, values = [np.empty(0, np.int64)], [np.empty(0, new.dtype)]
    for start in range(0, len(new), BLOCK):
        size = min(BLOCK, len(new) - start)
        np.bitwise_xor(new[start : start + size], old[start : start + size], out=xor[:size])
        np.not_equal(xor[:size], 0, out=differs[:size])
        found = np.flatnonzero(differs[:size])
        values.append(xor[found])
        positions.append(found + start)
    return np.concatenate(positions), np.concatenate(values)


def gaps(positions: np.ndarray) -> np.ndarray:
    """(K,) uint32: how many elements lie between each position and the one before (from the start, for the first)."""
    return (np.diff(positions, prepend=-1) - 1).astype(np.uint32)


def positions_of(gaps: np.ndarray, elements: int) -> np.ndarray:
    """The inverse of `gaps`: (K,) int64. Raises ValueError if they lead beyond `elements`."""
    positions = np.cumsum(gaps, dtype=np.int64) + np.arange(len(gaps))
    if len(positions) and positions[-1] >= elements:
        raise ValueError(f"a change at element {positions[-1]} of {elements}")
    return positions


# Two neighbouring states differ mostly in the low bits of their numbers. Laid out plane by plane (all lowest bytes, then all
# second bytes, ...), the high planes of the XOR are almost zero and the entropy coder sees each plane's own statistics.

# Level 1 is within 1% of level 9 on XOR planes (noise below, zeros above), at a third of the time.
LEVEL = 1


def pack(data: np.ndarray, item_bytes: int) -> list[bytes]:
    """data (elements * item_bytes,) uint8 -> one zstd frame per byte plane, lowest address first."""
    planes = np.ascontiguousarray(data.reshape(-1, item_bytes).T)  # (item_bytes, elements)
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    return [compressor.compress(plane.data) for plane in planes]


def unpack(frames: list[bytes], elements: int) -> np.ndarray:
    """The inverse of `pack`: (elements * len(frames),) uint8. Raises ValueError if a frame is not a plane of that length."""
    data = np.empty((elements, len(frames)), dtype=np.uint8)
    for number, frame in enumerate(frames):
        raw = decompress(frame, elements)
        if len(raw) != elements:
            raise ValueError(f"a plane of {len(raw)} bytes where {elements} belong")
        data[:, number] = np.frombuffer(raw, dtype=np.uint8)  # five times as fast as transposing all planes at once
    return data.reshape(-1)


# Bytes of the state that one shard tells of: large enough that zstd and request overhead vanish, small enough that a
# worker's copies of it are no burden and that many travel at once.
SHARD_BYTES = 64 << 20


def encode(
    state: State,
    put: Callable[[ShardRecord, bytes], None],
    *,
    version: int,
    base: State | None = None,
    base_version: int | None = None,
    base_digest: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    workers: int = 1,
) -> WeightManifest:
    """The anchor of `state`, or its delta from `base`: hands each shard to `put` (from any worker) and gives the manifest.

    `base_digest` spares hashing the base if its digest is known. Raises LayoutMismatch if the two states have different
    tensors, and whatever `put` raises.
    """
    if base is not None:
        _same_layout(state, base)
    layout = Layout(_rows(state))
    encode_cut = _cut_encoder(layout, state, base, put)
    with Workers(workers) as pool:
        cuts = list(enumerate(layout.cuts(shard_bytes)))
        found = [shard for shard in pool.map(encode_cut, cuts) if shard is not None]
        digests = dict(zip(state, pool.map(tensor_digest, list(state.values())), strict=True))
        if base is not None and base_digest is None:
            base_digest = state_digest(base)
    touched = {name for _, names in found for name in names}
    records = tuple(TensorRecord(*row, digests[row[0]], base is None or row[0] in touched) for row in _rows(state))
    return WeightManifest(
        version=version,
        base=base_version if base is not None else None,
        digest=digest_of_table((*record.row, record.digest) for record in records),
        base_digest=base_digest if base is not None else None,
        raw_bytes=sum(t.numel() * t.element_size() for t in state.values()),
        tensors=records,
        shards=tuple(record for record, _ in found),
    )


def _cut_encoder(
    layout: Layout, state: State, base: State | None, put: Callable[[ShardRecord, bytes], None]
) -> Callable[[tuple[int, Cut]], tuple[ShardRecord, set[str]] | None]:
    """A function from a numbered cut to its shard's record and the tensors that changed in it; None where none did."""
    new = {name: elements(tensor) for name, tensor in state.items()}
    old = None if base is None else {name: elements(tensor) for name, tensor in base.items()}

    def encode_cut(numbered: tuple[int, Cut]) -> tuple[ShardRecord, set[str]] | None:
        number, cut = numbered
        pieces = list(layout.pieces(cut))
        fresh = [new[piece.name][piece.of_tensor] for piece in pieces]
        before = None if old is None else [old[piece.name][piece.of_tensor] for piece in pieces]
        found = encode_shard(number, cut, fresh, before)
        if found is None:
            return None
        record, blob, touched = found
        put(record, blob)
        return record, {piece.name for piece, is_touched in zip(pieces, touched, strict=True) if is_touched}

    return encode_cut


def decode(
    manifest: WeightManifest,
    read: Callable[[int], bytes],
    base: State | None = None,
    *,
    rewind: bool = False,
    workers: int = 1,
) -> dict[str, Tensor]:
    """The state the manifest names (or, with `rewind`, the one it was made from, given the one it names as `base`).

    `read(i)`, called from any worker, gives the bytes of shard i. Unchanged tensors are shared with `base`. Raises a
    WeightsError that names the shard or tensor at fault, or what `read` raises; `base` is never written to.
    """
    if manifest.base is None:
        base = None
    elif base is None:
        raise WrongBase(f"{manifest.name} needs version {manifest.base}; none is at hand: start from an anchor")
    else:
        _fits(manifest, base)
    layout = Layout(record.row for record in manifest.tensors)
    with Workers(workers) as pool:
        fresh = blanks({record.name: _form(record) for record in manifest.changed})
        for _ in pool.map(lambda name: _fill(fresh[name], None if base is None else base[name]), list(fresh)):
            pass
        state = {**(base or {}), **fresh}
        for _ in pool.map(_shard_decoder(manifest, read, layout, fresh), range(len(manifest.shards))):
            pass
        digests = dict(zip(state, pool.map(tensor_digest, list(state.values())), strict=True))
    _check(manifest, state, digests, base, rewind)
    return state


def _shard_decoder(
    manifest: WeightManifest, read: Callable[[int], bytes], layout: Layout, fresh: State
) -> Callable[[int], None]:
    """A function that applies shard i to the tensors `fresh` in place. It raises CorruptShard."""
    flat = {name: elements(tensor) for name, tensor in fresh.items()}

    def decode_shard(number: int) -> None:
        blob, record = read(number), manifest.shards[number]
        manifest.check_shard(number, blob)
        try:
            pieces = [piece for piece in layout.pieces(record.cut) if piece.name in flat]
            apply_shard(record, blob, pieces, [flat[piece.name][piece.of_tensor] for piece in pieces])
        except (ValueError, IndexError) as error:
            raise CorruptShard(
                f"{manifest.name}/{record.file}: {error}; manifest and shard do not belong together"
            ) from error

    return decode_shard


def _form(record: TensorRecord) -> Tensor:
    return torch.empty(record.shape, dtype=getattr(torch, record.dtype), device="meta")


def _fill(new: Tensor, old: Tensor | None) -> None:
    """What the XOR goes onto: the base's bits, or zeros before an anchor's."""
    if old is None:
        elements(new).fill(0)
    else:
        np.copyto(elements(new), elements(old))


def _check(manifest: WeightManifest, state: State, digests: dict[str, str], base: State | None, rewind: bool) -> None:
    """The result is bit-identical to what was encoded, or the reason why not is raised."""
    wanted, came_from = manifest.digest, manifest.base_digest
    if rewind:
        wanted, came_from = came_from, wanted
    if digest_of_table((*row, digests[row[0]]) for row in _rows(state)) == wanted:
        return
    if base is not None and state_digest(base) != came_from:
        version = manifest.version if rewind else manifest.base
        raise WrongBase(
            f"{manifest.name}: the state at hand is not version {version}, which the delta connects: start from an anchor"
        )
    wrong = [] if rewind else [record.name for record in manifest.tensors if digests[record.name] != record.digest]
    raise CorruptTensor(f"{manifest.name}: {', '.join(wrong[:3]) or 'the state'} came out different; use an anchor")


def _rows(state: State) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(name, dtype_name(tensor.dtype), tuple(tensor.shape)) for name, tensor in sorted(state.items())]


def _same_layout(new: State, base: State) -> None:
    odd = sorted(set(_rows(new)) ^ set(_rows(base)))
    if odd:
        raise LayoutMismatch(
            f"{odd[0]} is on one side only ({len(odd)} such): it is another model's chain, publish into a new store"
        )


def _fits(manifest: WeightManifest, base: State) -> None:
    odd = sorted({record.row for record in manifest.tensors} ^ set(_rows(base)))
    if odd:
        raise LayoutMismatch(f"{manifest.name}: {odd[0]} is on one side only ({len(odd)} such); start from an anchor")
