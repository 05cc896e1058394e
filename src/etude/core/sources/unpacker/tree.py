"""Files below the working folder, written within limits. Nothing the archive says is believed: sizes are counted as they are
written, modes and owners are ignored, and links and devices are never made, so no path can lead out through one."""

from __future__ import annotations

import os
from collections import Counter
from typing import Protocol

CHUNK_BYTES = 256 * 1024  # so large that the loop's own cost vanishes, so small that the address space doesn't feel it


class ArchiveError(Exception):
    """The archive can't be taken; the message is the reason."""


class Readable(Protocol):
    """All that is asked of a stream of bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


class BoundedStream:
    """A decompressed stream that refuses to go on past any length that an honest archive within the limits has."""

    def __init__(self, stream: Readable, limit: int) -> None:
        self._stream, self._limit, self._count = stream, limit, 0

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self._count += len(data)
        if self._count > self._limit:
            raise ArchiveError(f"more than {self._limit:,} bytes unpacked")
        return data


class UnpackedTree:
    """The working folder. `limits` are the fields of `unpack.Limits`."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.limits = limits
        self.files = self.bytes = 0
        self.skipped: Counter[str] = Counter()
        self._entries = 0
        self._folders: set[str] = {""}

    def entry(self) -> None:
        """Counts a member of any type, also one that is skipped: a million empty folders are a bomb as well."""
        self._entries += 1
        if self._entries > self.limits["entries"]:
            raise ArchiveError(f"more than {self.limits['entries']:,} entries")

    def place(self, name: str) -> str | None:
        """The path below the working folder ("" is the folder itself); None, counted, for a name that no text can be filed under."""
        if name.startswith("/"):
            raise ArchiveError(f"absolute path {name[:80]!a}")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise ArchiveError(f"path climbs out of the archive: {name[:80]!a}")
        path = "/".join(parts)
        if len(os.fsencode(path)) > self.limits["path_bytes"]:
            raise ArchiveError(f"path longer than {self.limits['path_bytes']:,} bytes: {name[:80]!a} …")
        if "\0" in path:
            raise ArchiveError(f"NUL in the path {name[:80]!a}")
        if not path.isprintable():  # false for control characters and for the surrogates of bytes that are not UTF-8
            self.skipped["unprintable name"] += 1
            return None
        return path

    def write(self, path: str, claimed_bytes: int, stream: Readable) -> None:
        """A regular file; of two with the same path the last one stays, as with tar."""
        if path == "":
            raise ArchiveError("a file without a name")
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
