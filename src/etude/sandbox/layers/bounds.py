"""How much a tree or an archive may hold before it is refused."""

from __future__ import annotations

from dataclasses import dataclass

from etude.core.archives import ArchiveError, ArchiveLimits, EntryCounter
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


class BoundsCounter(EntryCounter):
    """Counts up to the bounds. Raises UnsafeContent beyond them."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(ArchiveLimits(bounds.max_entries, bounds.max_bytes, MAX_PATH_BYTES, MAX_NAME_BYTES, MAX_DEPTH))

    def add(self, path: str, size_bytes: int = 0) -> None:
        try:
            super().add(path, size_bytes)
        except ArchiveError as error:
            raise UnsafeContent(str(error)) from None
