"""Where an image's parts are: in a folder or in a tar archive, by name."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import posixpath
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any, Protocol

import zstandard

from etude.sandbox.layers.errors import BadImage
from etude.sandbox.layers.tree import PIECE_BYTES

_MAX_RECORD_BYTES = 16 << 20
BROKEN = (
    zlib.error,
    zstandard.ZstdError,
    gzip.BadGzipFile,
    EOFError,
)  # what a stream from `decompressed` may raise in addition to OSError
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Blobs(Protocol):
    def has(self, name: str) -> bool: ...
    def open(self, name: str) -> IO[bytes]:
        """Raises BadImage where there is none."""
        ...


class FolderBlobs:
    def __init__(self, root: Path) -> None:
        self._root = root

    def has(self, name: str) -> bool:
        return (self._root / name).is_file()

    def open(self, name: str) -> IO[bytes]:
        if posixpath.isabs(name) or ".." in name.split("/"):
            raise BadImage(f"{name!r} leads outside of the image")
        try:
            return open(os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
        except OSError as error:
            raise BadImage(f"the image has no {name} ({error.strerror})") from None


class TarBlobs:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def has(self, name: str) -> bool:
        return name in self._archive.getnames()

    def open(self, name: str) -> IO[bytes]:
        try:
            found = self._archive.extractfile(name)
        except KeyError:
            found = None
        if found is None:
            raise BadImage(f"the image has no {name}")
        return found


def record(blobs: Blobs, name: str, digest: str = "") -> Any:
    """A JSON part, checked."""
    with blobs.open(name) as file:
        data = file.read(_MAX_RECORD_BYTES)
    if digest and hashlib.sha256(data).hexdigest() != digest.removeprefix("sha256:"):
        raise BadImage(f"{name} is not what its digest {digest[:19]} says")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadImage(f"{name} is no JSON: {error}") from None


def require_digest(file: IO[bytes], digest: str) -> None:
    found = hashlib.sha256()
    while data := file.read(PIECE_BYTES):
        found.update(data)
    file.seek(0)
    if found.hexdigest() != digest.removeprefix("sha256:"):
        raise BadImage(f"a layer is not what its digest {digest[:19]} says")


def open_decompressed(file: IO[bytes]) -> IO[bytes]:
    """By its first bytes."""
    head = file.read(4)
    file.seek(0)
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if head == _ZSTD:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)  # type: ignore[return-value]
    return file
