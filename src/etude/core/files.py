"""Whole-file writes and appends: a reader sees the old content or the new one, never a part.

Two levels of durability, stated at each call:

- `durable=False`: a killed process loses nothing that was written before. After a power failure the file may be the old one or empty.
- `durable=True`: the content and the name are on the disk when the call returns.

A write goes to a hidden file next to the target (`.NAME.PID-THREAD.part`) and is renamed over it. An error removes that file and
leaves the target as it was. A kill leaves it behind; the next write of the same process number reuses it, and no reader matches its name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

LONGEST_NAME = 200  # bytes of the target's name that go into the hidden file's name; file systems allow 255


def replace_file(path: Path, data: bytes | str, *, durable: bool = False, mode: int = 0o666) -> None:
    """Give `path` this content as a whole. Text is UTF-8; `mode` is cut by the umask. Raises OSError."""
    with replacing(path, durable=durable, mode=mode) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


@contextmanager
def replacing(path: Path, *, durable: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A binary file whose content becomes that of `path` when the block ends without an error. Raises OSError."""
    part = path.with_name(f".{_shortened(path.name)}.{os.getpid()}-{threading.get_ident()}.part")
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(part, flags, mode), "w+b") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def append_lines(path: Path, data: bytes, *, durable: bool) -> None:
    """Add whole lines (each ends with a newline) in one write. A last line that a kill left incomplete is ended first.

    Readers skip such a line. Symbolic links are refused. Raises OSError, and takes back what was written, where the disk has no room for all.
    """
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            data = b"\n" + data
        if os.write(file, data) < len(data):
            os.ftruncate(file, size)
            raise OSError(f"{path}: the disk is full: free space and run the same command again, it goes on from here")
        if durable:
            os.fsync(file)
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: a rename survives a power failure only then. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:LONGEST_NAME])
