"""Reads a regular file of a tree that somebody else filled, and nothing else: neither a link, nor a pipe, nor a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_regular(path: Path, most: int) -> bytes:
    """At most `most` bytes. A link is not followed, a pipe not waited for. Raises OSError, FileNotFoundError for what is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{path} is no regular file")
    with open(descriptor, "rb") as file:
        return file.read(most)
