"""The progress of a download from the hub as lines on stderr, a line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field

EVERY_S = 5.0


@dataclass
class DownloadLines:
    """Follows the downloads of one checkpoint (`hub_download.DownloadObserver`)."""

    label: str
    _size: int = 0
    _done: int = 0
    _next_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_start(self, files: int, size: int) -> None:
        self._size, self._done, self._next_s = size, 0, time.monotonic() + EVERY_S
        self._write(f"downloading {files} {'file' if files == 1 else 'files'}, {readable_bytes(size)}")

    def on_bytes(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now >= self._next_s:
                self._next_s = now + EVERY_S
                self._write(f"{readable_bytes(self._done)} of {readable_bytes(self._size)}")

    def _write(self, text: str) -> None:
        print(f"{self.label}: {text}", file=sys.stderr, flush=True)


def readable_bytes(count: int) -> str:
    """A size in the unit that fits, in powers of 1000."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
