"""How many connections a server of threads holds at once: each has a thread, so slow clients are bounded by letting the oldest go.

A connection waits until a request has arrived and again when it is answered; it is at work in between. One that waits is given up for
a new one, one at work never: a person's page opens however many clients are slow.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class Connections:
    """Thread-safe. `most` is how many are held."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # the longest waiting first
        self._working: set[socket.socket] = set()

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting) + len(self._working)

    def admit(self, connection: socket.socket) -> bool:
        """Hold a new one; False where all others are at work."""
        with self._lock:
            if len(self._waiting) + len(self._working) >= self._most:
                oldest = next(iter(self._waiting), None)
                if oldest is None:
                    return False
                del self._waiting[oldest]
                with contextlib.suppress(OSError):  # it may be gone already; its thread wakes up and ends
                    oldest.shutdown(socket.SHUT_RDWR)
            self._waiting[connection] = None
            return True

    def working(self, connection: socket.socket) -> None:
        """Its request has arrived."""
        with self._lock:
            if connection in self._waiting:  # else it was given up in this moment
                del self._waiting[connection]
                self._working.add(connection)

    def waits(self, connection: socket.socket) -> None:
        """Its request is answered."""
        with self._lock:
            if connection in self._working:
                self._working.discard(connection)
                self._waiting[connection] = None

    def gone(self, connection: socket.socket) -> None:
        """It is closed."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._working.discard(connection)
