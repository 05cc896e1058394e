"""A rollout as one bytes object: for the way through Ray and for exact resume. Promise 4 keeps its segments together.

    b"ETO1" header_bytes:u32 | header JSON | per segment: ids:i32[T] sampled:bits[T] logprobs:f32[S] versions:i32[S] routes
    | CRC-32 of all before

S is the number of sampled tokens; elsewhere logprobs are 0 and versions -1 by definition. About 12 bytes a token.
"""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np

from etude.core.trace.segment import Rollout, Segment

_MAGIC = b"ETO1"
_U32 = struct.Struct("<I")


def rollout_to_bytes(rollout: Rollout) -> bytes:
    """Exact: `rollout_from_bytes` gives equal arrays and equal floats. `info` must hold JSON values."""
    header = {
        "id": rollout.id,
        "task_id": rollout.task_id,
        "group": rollout.group,
        "rewards": rollout.rewards,
        "counters": rollout.counters,
        "info": rollout.info,
        "segments": [_describe(segment) for segment in rollout.segments],
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join((_MAGIC, _U32.pack(len(text)), text, *(_pack(s) for s in rollout.segments)))
    return body + _U32.pack(zlib.crc32(body))


def rollout_from_bytes(data: bytes) -> Rollout:
    """Raises ValueError for anything that `rollout_to_bytes` did not write."""
    if data[:4] != _MAGIC or len(data) < 12 or _U32.unpack(data[-4:])[0] != zlib.crc32(data[:-4]):
        raise ValueError(
            f"{len(data)} bytes that are no whole rollout (magic or checksum); take it from its source again"
        )
    size = _U32.unpack_from(data, 4)[0]
    header = json.loads(data[8 : 8 + size])
    reader = _ArrayReader(data, 8 + size)
    segments = [_unpack(reader, row) for row in header.pop("segments")]
    return Rollout(segments=segments, **header)


def _describe(segment: Segment) -> dict:
    row: dict = {"tokens": len(segment), "sampled": int(segment.sampled.sum())}
    if segment.routes is not None:
        row["routes"] = [*segment.routes.shape[1:], segment.routes.dtype.itemsize]
    return row


def _pack(segment: Segment) -> bytes:
    picked = segment.sampled
    arrays = [
        segment.ids.astype("<i4").tobytes(),
        np.packbits(picked).tobytes(),
        segment.logprobs[picked].astype("<f4").tobytes(),
        segment.versions[picked].astype("<i4").tobytes(),
    ]
    if segment.routes is not None:
        arrays.append(np.ascontiguousarray(segment.routes).tobytes())
    return b"".join(arrays)


class _ArrayReader:
    """Takes arrays off a bytes object in order."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, dtype: str, count: int) -> np.ndarray:
        array = np.frombuffer(self._data, dtype, count, self._at).copy()
        self._at += array.nbytes
        return array


def _unpack(reader: _ArrayReader, row: dict) -> Segment:
    length, count = row["tokens"], row["sampled"]
    ids = reader.take("<i4", length)
    sampled = np.unpackbits(reader.take("u1", (length + 7) // 8), count=length).astype(bool)
    logprobs = np.zeros(length, dtype=np.float32)
    versions = np.full(length, -1, dtype=np.int32)
    logprobs[sampled] = reader.take("<f4", count)
    versions[sampled] = reader.take("<i4", count)
    routes = None
    if "routes" in row:
        layers, experts, item = row["routes"]
        routes = reader.take(f"<u{item}", length * layers * experts).reshape(length, layers, experts)
    return Segment(ids, sampled, logprobs, versions, routes)
