"""A group of rollouts as one compressed file: what RL leaves in `groups/`, and what training, resume and the report read.

Layout before zstd: an 8-byte length, a JSON header (rollouts with the shape of each array), then the arrays in order. The frame ends with
zstd's checksum of all that (XXH64, 32 bits of it), so a byte that was damaged on the disk is never a token or a reward.
Level 1: a group of 8 short rollouts takes about a millisecond, and the controller writes it between two rollouts.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import zstandard

from etude.core.trace.bounded_zstd import decompress
from etude.core.trace.segment import Rollout, Segment

ARRAYS = ("ids", "sampled", "logprobs", "versions", "routes")
KINDS = {"ids": "iu", "sampled": "b", "logprobs": "f", "versions": "i", "routes": "u"}  # numpy's letters of their types
# What a file may hold: real groups pack by 3 to 30 times, a file of somebody else by 30,000.
MOST_RATIO, LEAST_BOUND_BYTES = 256, 64 << 20


class DamagedGroup(ValueError):
    """Bytes that are no group of rollouts."""


def pack_group(rollouts: list[Rollout]) -> bytes:
    """The bytes of the file; `unpack_group` gives equal rollouts."""
    headers: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for rollout in rollouts:
        header = {name: value for name, value in asdict(_bare(rollout)).items() if name != "segments"}
        header["segments"] = []
        for segment in rollout.segments:
            shapes: dict[str, Any] = {"session": segment.session} if segment.session else {}
            for name in ARRAYS:
                array = getattr(segment, name)
                if array is not None:
                    shapes[name] = [array.dtype.str, list(array.shape)]
                    blobs.append(np.ascontiguousarray(array).tobytes())
            header["segments"].append(shapes)
        headers.append(header)
    head = json.dumps(headers).encode()
    data = b"".join([len(head).to_bytes(8, "little"), head, *blobs])
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data)


def unpack_group(packed: bytes) -> list[Rollout]:
    """The rollouts in slot order; their arrays are copies that may be written to. Raises DamagedGroup, also for one that holds absurdly much."""
    try:
        return _rollouts(decompress(packed, max(LEAST_BOUND_BYTES, MOST_RATIO * len(packed))))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise DamagedGroup(f"{len(packed)} bytes that are no whole group of rollouts: {error}") from error


def _bare(rollout: Rollout) -> Rollout:
    """The rollout without its arrays (asdict would copy them)."""
    return Rollout(rollout.id, rollout.task_id, rollout.group, [], rollout.rewards, rollout.counters, rollout.info)


def _rollouts(data: bytes) -> list[Rollout]:
    size = int.from_bytes(data[:8], "little")
    headers = json.loads(data[8 : 8 + size])
    at = 8 + size
    rollouts = []
    for header in headers:
        segments = []
        for shapes in header.pop("segments"):
            arrays: dict[str, np.ndarray] = {}
            session = shapes.pop("session", "")
            if not isinstance(session, str):
                raise ValueError(f"a segment of session {session!r}")
            for name, (dtype, shape) in shapes.items():
                _check(name, dtype, shape)
                count = math.prod(shape)
                arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape).copy()
                at += arrays[name].nbytes
            if len({len(array) for array in arrays.values()}) != 1:
                raise ValueError("arrays of a segment differ in length")
            segments.append(Segment(**arrays, session=session))  # pyright: ignore[reportArgumentType]
        rollouts.append(Rollout(segments=segments, **header))
    return rollouts


def _check(name: str, dtype: str, shape: list[int]) -> None:
    """Raises ValueError for what is no array of a segment."""
    kind = np.dtype(dtype).kind
    dimensions = 3 if name == "routes" else 1
    if name not in KINDS or kind not in KINDS[name]:
        raise ValueError(f"an array {name!r} of type {dtype!r}")
    if len(shape) != dimensions or any(not isinstance(size, int) or size < 0 for size in shape):
        raise ValueError(f"an array {name!r} of shape {shape!r}")
