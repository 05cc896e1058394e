"""Files of packages on disk, known by what they are.

Promise: a file that is not what its digest says never arrives whole. It is hashed while it passes and its last piece is held back until the
digest fits, on the way from the index and on every later one from disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

from etude.sandbox.egress.errors import RequestRefused

ALGORITHMS = ("sha512", "sha384", "sha256", "sha1")  # strongest first; sha1 is all that npm's oldest packages have
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class Digest:
    algorithm: str
    hexadecimal: str


def best(hashes: dict[str, str]) -> Digest | None:
    """Of the digests an index gives, the strongest we know."""
    return next((Digest(name, hashes[name].lower()) for name in ALGORITHMS if hashes.get(name)), None)


class FileCache:
    """A folder of at most `most_bytes`; what was used longest ago goes first. Several processes may share it."""

    def __init__(self, folder: Path, most_bytes: int = 8 << 30) -> None:
        self._folder, self._most_bytes = folder, most_bytes

    def size(self, digest: Digest) -> int | None:
        """In bytes; None: not here."""
        try:
            return self._path(digest).stat().st_size
        except FileNotFoundError:
            return None

    async def pieces(self, digest: Digest, source: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """From disk, or from `source` and kept. Raises Refused(502) before the last piece of what is wrong."""
        path = self._path(digest)
        if path.exists():
            os.utime(path)
            try:
                async with aclosing(_checked(_read(path), digest)) as checked:
                    async for piece in checked:
                        yield piece
            except RequestRefused:
                path.unlink(missing_ok=True)  # the disk's doing: the next one gets it from the index
                raise
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".coming-")
        try:
            with open(descriptor, "wb") as file:
                async with aclosing(_checked(source, digest, file.write)) as checked:
                    async for piece in checked:
                        yield piece
            os.replace(name, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)
        await asyncio.to_thread(self._prune)

    def _path(self, digest: Digest) -> Path:
        if not digest.hexadecimal.isalnum():
            raise RequestRefused(502, "the index gives a digest that is none")
        return self._folder / digest.algorithm / digest.hexadecimal

    def _prune(self) -> None:
        found = []
        for path in self._folder.glob("*/[!.]*"):
            with suppress(FileNotFoundError):  # another process prunes as well
                entry = path.stat()
                found.append((entry.st_mtime_ns, entry.st_size, path))
        left = sum(size for _, size, _ in found) - self._most_bytes
        for _, size, path in sorted(found):
            if left <= 0:
                return
            path.unlink(missing_ok=True)
            left -= size


async def _checked(
    source: AsyncGenerator[bytes, None], digest: Digest, sink: Callable[[bytes], object] = len
) -> AsyncGenerator[bytes, None]:
    found, held = hashlib.new(digest.algorithm), b""
    async with aclosing(source):
        async for piece in source:
            found.update(piece)
            sink(piece)
            if held:
                yield held
            held = piece
    if found.hexdigest() != digest.hexadecimal:
        raise RequestRefused(502, f"the file is not what its {digest.algorithm} says")
    if held:
        yield held


async def _read(path: Path) -> AsyncGenerator[bytes, None]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
