"""A segment's bytes on disk: named numpy arrays behind a JSON head, with a checksum; read by mapping the file, so that all processes that
search one index share its pages and memory stays flat.

    8 bytes  magic          4 bytes  length of the head (little-endian)          4 bytes  CRC-32 of all that follows
    head     {"name": [dtype, shape, offset from the end of the head], ...}      arrays, each at a multiple of 8
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from etude.agent.code_index.errors import TornStore
from etude.core.files import replacing

Columns = Mapping[str, NDArray[Any]]
MAGIC = b"ETUDEIX1"
HEAD = struct.Struct("<8sII")


def write_columns(path: Path, columns: Columns) -> None:
    """The file whole and on the disk, or (after a kill) not under this name."""
    head: dict[str, tuple[str, tuple[int, ...], int]] = {}
    blocks, offset = [], 0
    for name, array in columns.items():
        data = np.ascontiguousarray(array).tobytes()
        head[name] = (array.dtype.str, array.shape, offset)
        blocks += [data, bytes(-len(data) % 8)]
        offset += len(blocks[-2]) + len(blocks[-1])
    text = json.dumps(head).encode()
    text += b" " * (-(HEAD.size + len(text)) % 8)
    check = zlib.crc32(text)
    for block in blocks:
        check = zlib.crc32(block, check)
    with replacing(path, durable=True) as file:
        file.write(HEAD.pack(MAGIC, len(text), check) + text)
        file.writelines(blocks)


def read_columns(path: Path) -> Columns:
    """The arrays, read-only views of the mapped file. Raises TornStore if a byte is not as it was written."""
    try:
        with open(path, "rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # missing, unreadable, or empty
        raise TornStore(f"{path.name}: {error}") from error
    if len(mapped) < HEAD.size:
        raise TornStore(f"{path.name} ends in its head")
    magic, length, check = HEAD.unpack(mapped[: HEAD.size])
    if magic != MAGIC or zlib.crc32(mapped[HEAD.size :]) != check:
        raise TornStore(f"{path.name} is not as it was written")
    start = HEAD.size + length
    found = {}
    for name, (dtype, shape, offset) in json.loads(bytes(mapped[HEAD.size : start])).items():
        kind, count = np.dtype(dtype), int(np.prod(shape))
        found[name] = np.frombuffer(mapped, kind, count, start + offset).reshape(shape)
    return found
