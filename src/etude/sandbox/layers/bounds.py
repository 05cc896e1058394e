"""How much a tree or an archive may hold before it is refused."""

from __future__ import annotations

import os
from dataclasses import dataclass

from etude.sandbox.layers.errors import UnsafeContent

MAX_PATH_BYTES, MAX_NAME_BYTES = (
    3500,
    255,
)  # else no layer of it could be looked at again: a path has 4095 bytes at most
MAX_DEPTH = 128  # deeper than any repository; bounds descriptors and recursion on a hostile tree


@dataclass(frozen=True)
class Bounds:
    """Sizes count as a file says them, holes too: a sparse file must be read to be known."""

    max_bytes: int = 16 << 30
    max_entries: int = 500_000


class BoundsCounter:
    """Counts up to the bounds. Raises Hostile beyond them."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds, self._bytes, self._entries = bounds, 0, 0

    def add(self, path: str, size_bytes: int = 0) -> None:
        self._entries += 1
        self._bytes += size_bytes
        if self._entries > self._bounds.max_entries:
            raise UnsafeContent(f"it holds more than {self._bounds.max_entries} files and folders")
        if self._bytes > self._bounds.max_bytes:
            raise UnsafeContent(f"{path}: all together is over {self._bounds.max_bytes} bytes")
        if path.count("/") >= MAX_DEPTH:
            raise UnsafeContent(f"{path[:60]}…: folders nest deeper than {MAX_DEPTH}")
        size = len(os.fsencode(path))
        if size > MAX_PATH_BYTES or len(os.fsencode(path.rpartition("/")[2])) > MAX_NAME_BYTES:
            raise UnsafeContent(
                f"{path[:60]}…: a path of {size} bytes; {MAX_PATH_BYTES} at most, and {MAX_NAME_BYTES} for each name"
            )
