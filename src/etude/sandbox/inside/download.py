"""A tree of files on its way out: the TREE frames that answer GET. Links are reported, never followed."""

from __future__ import annotations

import os
import posixpath
import stat

from etude.sandbox.inside import files, frames

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_PIECE_BYTES = 1 << 20
_FRAME_BYTES = 4 << 20
_FRAME_ENTRIES = 1000


def tree(store: files.FileOperations, stream: int, path: str, max_bytes: int) -> Iterator[bytes]:
    """Frames. Raises OSError and Refused, then nothing was last."""
    entries: list[list[Any]] = []
    pieces: list[bytes] = []
    held = total = 0
    for entry, data in _entries(store, path):
        total += len(data)
        if total > max_bytes:
            raise files.FileRequestError("OutputLimit", f"the files under {path} are over {max_bytes} bytes")
        if held + len(data) > _FRAME_BYTES or len(entries) >= _FRAME_ENTRIES:
            yield frames.pack(frames.TREE, stream, {"entries": entries, "last": False}, b"".join(pieces))
            entries, pieces, held = [], [], 0
        entries.append(entry)
        pieces.append(data)
        held += len(data)
    yield frames.pack(frames.TREE, stream, {"entries": entries, "last": True}, b"".join(pieces))


def _entries(store: files.FileOperations, path: str) -> Iterator[tuple[list[Any], bytes]]:
    for name, status, folder in store.walk(path, recursive=True):
        kind, mode = files.kind_of(status), stat.S_IMODE(status.st_mode)
        if kind == "dir":
            yield [name, kind, mode, status.st_mtime_ns, 0, ""], b""
        elif kind == "link":
            try:
                target = os.readlink(posixpath.basename(name), dir_fd=folder)
            except OSError:
                continue  # removed or replaced since it was listed
            yield [name, kind, mode, status.st_mtime_ns, 0, target], b""
        elif kind == "file":
            for data in _pieces(posixpath.basename(name), folder):
                yield [name, kind, mode, status.st_mtime_ns, len(data), ""], data


def _pieces(name: str, folder: int) -> Iterator[bytes]:
    """At least one, if it is a file that can be read."""
    try:
        fd = os.open(name, files.OPEN_TO_READ, dir_fd=folder)
    except OSError:
        return  # removed or replaced since it was listed, or closed to its own owner
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return
        data = os.read(fd, _PIECE_BYTES)
        yield data
        while data := os.read(fd, _PIECE_BYTES):
            yield data
    finally:
        os.close(fd)
