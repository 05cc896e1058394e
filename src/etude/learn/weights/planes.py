"""Bytes to compressed byte planes and back.

Two neighbouring states differ mostly in the low bits of their numbers. Laid out plane by plane (all lowest bytes, then all
second bytes, ...), the high planes of the XOR are almost zero and the entropy coder sees each plane's own statistics.
"""

from __future__ import annotations

import numpy as np
import zstandard

from etude.core.trace.bounded_zstd import decompress

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
