"""zstd frames from files that somebody else may have written, never decompressed beyond a bound.

A frame of 98 KB may hold 3 GiB. `max_output_size` of the zstandard package is no bound: where the frame's header names a size, it
allocates that much. So the header is read first, and a frame without a size is decompressed piece by piece.
"""

from __future__ import annotations

import zstandard

PIECE_BYTES = 256  # of the frame at once: four of them may hold 128 KiB


class BadFrame(ValueError):
    """Bytes that are no zstd frame, or one that holds more than is allowed."""


def decompress(packed: bytes, most_bytes: int) -> bytes:
    """What the first frame holds, at most `most_bytes`. Raises BadFrame."""
    try:
        size = zstandard.get_frame_parameters(packed).content_size
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            return _by_pieces(packed, most_bytes)
        if size > most_bytes:
            raise BadFrame(
                f"a frame of {len(packed):,} bytes holds {size:,}, more than the {most_bytes:,} that belong there"
            )
        return zstandard.ZstdDecompressor().decompress(packed)
    except (zstandard.ZstdError, MemoryError) as error:
        raise BadFrame(f"{len(packed):,} bytes that are no whole zstd frame: {error}") from error


def _by_pieces(packed: bytes, most_bytes: int) -> bytes:
    pieces: list[bytes] = []
    total_bytes = 0
    reader = zstandard.ZstdDecompressor().decompressobj()  # a stream_reader takes a cut frame for a whole one
    for start in range(0, len(packed), PIECE_BYTES):
        pieces.append(reader.decompress(packed[start : start + PIECE_BYTES]))
        total_bytes += len(pieces[-1])
        if total_bytes > most_bytes:
            raise BadFrame(f"a frame of {len(packed):,} bytes holds more than the {most_bytes:,} that belong there")
        if reader.eof:
            return b"".join(pieces)
    raise BadFrame(f"{len(packed):,} bytes that are no whole zstd frame: it is cut")
