"""One shard: the difference of one cut of a lane, as zstd frames, in whichever of two forms suits it.

sparse    four planes of gaps between changed elements (uint32), then the planes of their XOR
dense     the planes of the XOR of all elements (of an anchor: of the elements themselves)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import zstandard

from etude.core.trace.bounded_zstd import decompress
from etude.learn.weights.layout import Cut, Piece
from etude.learn.weights.manifest import ShardRecord

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
