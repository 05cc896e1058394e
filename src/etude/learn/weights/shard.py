"""One shard: the difference of one cut of a lane, as zstd frames, in whichever of two forms suits it.

sparse    four planes of gaps between changed elements (uint32), then the planes of their XOR
dense     the planes of the XOR of all elements (of an anchor: of the elements themselves)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from etude.learn.weights.changes import changes, gaps, positions_of
from etude.learn.weights.layout import Cut, Piece
from etude.learn.weights.manifest import ShardRecord
from etude.learn.weights.planes import pack, unpack

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
