"""Blocks of the side files: `*.tokens` and `*.routes`, one block an entry, in the order of the entries. Little-endian.

    tokens: b"ETT1" entry:u32 lead:u32 sampled:u32 total:u32 | ids:i32[total] logprobs:f32[sampled] versions:i32[sampled]
    routes: b"ETR1" entry:u32 start:u32 rows:u32 layers:u16 experts:u16 item_bytes:u8 | rows of u8 or u16, C order

Each block ends with the CRC-32 of all its bytes before. A torn or damaged last block (a kill while writing) is left out by
the reader; damage before the last block raises.
"""

from __future__ import annotations

import struct
import zlib
from typing import Iterator

import numpy as np

from etude.core.trace.entry import EntryRoutes, EntryTokens

_TOKENS = struct.Struct("<4sIIII")
_ROUTES = struct.Struct("<4sIIIHHB")
_CRC = struct.Struct("<I")


class DamagedFile(ValueError):
    """A side file is broken before its last block."""


def pack_tokens(entry: int, tokens: EntryTokens) -> bytes:
    """One block of `*.tokens`."""
    head = _TOKENS.pack(b"ETT1", entry, tokens.lead, len(tokens.logprobs), len(tokens.ids))
    arrays = (
        np.array(tokens.ids, dtype="<i4").tobytes(),
        np.array(tokens.logprobs, dtype="<f4").tobytes(),
        np.array(tokens.versions, dtype="<i4").tobytes(),
    )
    return _sealed(head + b"".join(arrays))


def pack_routes(entry: int, routes: EntryRoutes) -> bytes:
    """One block of `*.routes`."""
    count, layers, experts = routes.rows.shape
    item = routes.rows.dtype.itemsize
    head = _ROUTES.pack(b"ETR1", entry, routes.start, count, layers, experts, item)
    return _sealed(head + np.ascontiguousarray(routes.rows, dtype=f"<u{item}").tobytes())


def unpack_tokens(data: bytes) -> dict[int, EntryTokens]:
    """Tokens by entry id."""
    found: dict[int, EntryTokens] = {}
    for block in _blocks(data, _TOKENS, _tokens_size):
        _, entry, lead, sampled, total = _TOKENS.unpack_from(block)
        at = _TOKENS.size
        ids = np.frombuffer(block, "<i4", total, at)
        logprobs = np.frombuffer(block, "<f4", sampled, at + 4 * total)
        versions = np.frombuffer(block, "<i4", sampled, at + 4 * (total + sampled))
        found[entry] = EntryTokens(ids.tolist(), lead, logprobs.tolist(), versions.tolist())
    return found


def unpack_routes(data: bytes) -> dict[int, EntryRoutes]:
    """Routes by entry id."""
    found: dict[int, EntryRoutes] = {}
    for block in _blocks(data, _ROUTES, _routes_size):
        _, entry, start, rows, layers, experts, item = _ROUTES.unpack_from(block)
        flat = np.frombuffer(block, f"<u{item}", rows * layers * experts, _ROUTES.size)
        found[entry] = EntryRoutes(start, flat.reshape(rows, layers, experts))
    return found


def _tokens_size(head: tuple) -> int:
    return 4 * (head[4] + 2 * head[3])


def _routes_size(head: tuple) -> int:
    return head[3] * head[4] * head[5] * head[6]


def _sealed(body: bytes) -> bytes:
    return body + _CRC.pack(zlib.crc32(body))


def _blocks(data: bytes, head: struct.Struct, size_of) -> Iterator[bytes]:
    """The bodies of the whole blocks, each without its checksum."""
    at = 0
    while at < len(data):
        if at + head.size > len(data):
            return  # torn inside the head
        stop = at + head.size + size_of(head.unpack_from(data, at))
        end = stop + _CRC.size
        if end > len(data):
            return  # torn inside the body
        if _CRC.unpack_from(data, stop)[0] != zlib.crc32(data[at:stop]):
            if end == len(data):
                return
            raise DamagedFile(f"the block at byte {at} fails its checksum; restore the file or delete the session")
        yield data[at:stop]
        at = end
