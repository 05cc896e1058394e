"""Files below the working folder, written within limits. Nothing the archive says is believed: sizes are counted as they are
written, modes and owners are ignored, and links and devices are never made, so no path can lead out through one."""

from __future__ import annotations

import os
import sys
from collections import Counter

from etude.core.archives import ArchiveError, ArchiveLimits, EntryCounter, Readable

CHUNK_BYTES = 256 * 1024  # so large that the loop's own cost vanishes, so small that the address space doesn't feel it


class UnpackedTree:
    """The working folder. `limits` are the fields of `unpack.UnpackLimits`."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.limits = limits
        self.files = self.bytes = 0
        self.skipped: Counter[str] = Counter()
        # Bytes are counted as they are written, without files that are left out.
        self.counter = EntryCounter(ArchiveLimits(limits["entries"], sys.maxsize, limits["path_bytes"]))
        self._folders: set[str] = {""}

    def has_printable_name(self, path: str) -> bool:
        """False, counted, for control characters and for the surrogates of bytes that are not UTF-8: no text can be filed under such a name."""
        if not path.isprintable():
            self.skipped["unprintable name"] += 1
        return path.isprintable()

    def write(self, path: str, claimed_bytes: int, stream: Readable) -> None:
        """A regular file; of two with the same path the last one stays, as with tar."""
        if claimed_bytes > self.limits["file_bytes"]:
            self.skipped["file too large"] += 1
            return
        self._folder(path.rpartition("/")[0])
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            written = 0
            while chunk := stream.read(CHUNK_BYTES):
                written += len(chunk)
                self.bytes += len(chunk)
                if written > self.limits["file_bytes"]:
                    raise ArchiveError(f"{path[:80]!a} is longer than its header says")
                if self.bytes > self.limits["total_bytes"]:
                    raise ArchiveError(f"more than {self.limits['total_bytes']:,} bytes unpacked")
                view = memoryview(chunk)
                while view:
                    view = view[os.write(file, view) :]
        finally:
            os.close(file)
        self.files += 1

    def _folder(self, path: str) -> None:
        if path not in self._folders:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._folders.add(path)
