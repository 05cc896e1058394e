"""The wire between client and runner: `u32 length | u8 type | u32 stream | payload`, payload = `u32 n | n bytes JSON | raw bytes`.

Promise: a reader never holds more than the limit it was given plus one socket read; anything malformed is a `FrameError`.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork of a warm run slower
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

HEADER = struct.Struct("!IBI")
COUNT = struct.Struct("!I")

# One frame carries at most one file or one export; 64 MiB is four times the default export limit.
MAX_FRAME_BYTES = 64 << 20

# The types of docs/sandbox-protocol.md, in its order.
HELLO, SPEC, READY, OK, ERROR, OUTPUT, EXIT, TREE, SPENT = range(1, 10)
RUN, CANCEL, READ, WRITE, LIST, REMOVE, EXPORT = range(10, 17)
EXEC, STDIN, SIGNAL, RESIZE, CREDIT, STAT, GET, PUT, CONNECT, FREEZE, GRANT = range(17, 28)
KNOWN = frozenset(range(HELLO, GRANT + 1))

# The kernel counts descriptors in flight by user, up to a sender's own limit of open files; processes inside may belong to the same user.
TOO_MANY_ON_THE_WAY = "too many descriptors are on their way between sockets of the inside's user"


class FrameError(Exception):
    """The peer broke the protocol; the connection can't be used any more."""


class FrameTooLarge(FrameError):
    """A message that no frame can hold."""


class Frame:
    """One message. A plain class: `typing` and `dataclasses` would double the memory that every fork copies."""

    __slots__ = ("blob", "head", "kind", "stream")

    def __init__(self, kind: int, stream: int, head: dict[str, Any], blob: bytes) -> None:
        self.kind, self.stream, self.head, self.blob = kind, stream, head, blob


def pack(kind: int, stream: int, head: dict[str, Any], blob: bytes = b"") -> bytes:
    """One frame as bytes. `head` holds JSON values; names of files travel with surrogate escapes kept."""
    text = json.dumps(head, separators=(",", ":")).encode()
    length = COUNT.size + len(text) + len(blob)
    if length > MAX_FRAME_BYTES:
        raise FrameTooLarge(f"a frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}")
    return b"".join((HEADER.pack(length, kind, stream), COUNT.pack(len(text)), text, blob))


def unpack(kind: int, stream: int, payload: memoryview) -> Frame:
    if len(payload) < COUNT.size:
        raise FrameError(f"payload of {len(payload)} bytes is too short")
    (size,) = COUNT.unpack_from(payload)
    if size > len(payload) - COUNT.size:
        raise FrameError(f"JSON part of {size} bytes is longer than its payload")
    try:
        head = json.loads(bytes(payload[COUNT.size : COUNT.size + size]))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"JSON part can't be read: {error}") from None
    if not isinstance(head, dict):
        raise FrameError(f"JSON part is {type(head).__name__}, expected an object")
    return Frame(kind, stream, head, bytes(payload[COUNT.size + size :]))


class Splitter:
    """Cuts a byte stream into frames. `limit_of(stream)` says how long a payload of that stream may be."""

    def __init__(self, limit_of: Callable[[int], int] = lambda stream: MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._limit_of = limit_of

    @property
    def pending(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            length, kind, stream = HEADER.unpack_from(buffer)
            if kind not in KNOWN:
                raise FrameError(f"unknown frame type {kind}")
            limit = min(self._limit_of(stream), MAX_FRAME_BYTES)
            if length > limit:
                raise FrameError(f"frame of {length} bytes on stream {stream} is over its limit of {limit}")
            end = HEADER.size + length
            if len(buffer) < end:
                return
            with memoryview(buffer) as view:
                frame = unpack(kind, stream, view[HEADER.size : end])
            del buffer[:end]
            yield frame
