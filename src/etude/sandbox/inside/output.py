"""Bounded memory of a stream: its head and its tail, with a note between them. Promise: never more than `limit` bytes."""

from __future__ import annotations

import collections


class Output:
    """Keeps everything up to `limit` bytes; beyond it half head, half tail."""

    _NOTE_BYTES = 48  # room for the note with a twenty-digit count

    def __init__(self, limit: int) -> None:
        room = max(limit - self._NOTE_BYTES, 0)
        self._limit = limit
        self._head_room = room - room // 2
        self._tail_room = room // 2
        self._head = bytearray()
        self._tail: collections.deque[bytes] = collections.deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0
        self._cut = False

    def add(self, data: bytes) -> None:
        if not self._cut:
            if len(self._head) + len(data) <= self._limit:
                self._head += data
                return
            self._cut = True
            data = bytes(self._head[self._head_room :]) + data
            fits = max(self._head_room - len(self._head), 0)
            del self._head[self._head_room :]
            self._head += data[:fits]
            data = data[fits:]
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= self._tail_room and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail[0])
            self._dropped_bytes += len(self._tail.popleft())

    def result(self) -> tuple[bytes, bool]:
        """(bytes kept, whether something was left out)."""
        if not self._cut:
            return bytes(self._head), False
        tail = b"".join(self._tail)
        kept = tail[max(len(tail) - self._tail_room, 0) :]
        note = b"\n[... %d bytes left out ...]\n" % (self._dropped_bytes + len(tail) - len(kept))
        return (bytes(self._head) + note + kept)[: self._limit], True
