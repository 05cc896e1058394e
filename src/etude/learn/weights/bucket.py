"""Where a store's objects lie: a folder, or a bucket of an S3-compatible server. Seven verbs, and all that a store asks of either.

Objects are whole or not there; only the index is ever replaced, and only by who knows what it replaces. Readers ask for keys
that the index leads to, and never list.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class ObjectBucket(Protocol):
    """Keys are `folder/file` or, for the index, `file`."""

    url: str  # for people: where this is

    def get(self, key: str) -> tuple[bytes, str]:
        """An object and its tag, which any change of it changes. Raises MissingShard."""
        ...

    def news(self, key: str, tag: str | None) -> tuple[bytes, str] | None:
        """As `get`, or None where the object still has this tag: over a link that costs a request, not the object. Raises MissingShard."""
        ...

    def part(self, key: str, first: int, stop: int) -> bytes:
        """Bytes `first` to `stop` of an object, fewer where it ends before. Raises MissingShard."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Puts an object down, whole, or raises and leaves none."""
        ...

    def replace(self, key: str, data: bytes, tag: str | None) -> str:
        """Puts an object in the place of the one with this tag (None: of none) and gives the new tag. Raises Overtaken
        if another object is there."""
        ...

    def folders(self) -> list[str]:
        """The folders there are, whole or half; only writers ask."""
        ...

    def remove(self, folder: str) -> None:
        """Removes a folder's objects as far as possible; what stays is harmless and goes the next time."""
        ...


def open_bucket(place: Path | str) -> ObjectBucket:
    """The bucket at a path or an `s3://bucket/prefix` URL."""
    if isinstance(place, str) and place.startswith("s3://"):
        from etude.learn.weights.s3 import S3Bucket

        return S3Bucket.at(place)
    if isinstance(place, str) and "://" in place:
        raise ValueError(f"{place}: weights go to a folder or to s3://bucket/prefix")
    from etude.learn.weights.folder import FolderBucket

    return FolderBucket(Path(place))
