"""Tar and zip. Read with the standard library, whose guesses about broken archives are overruled: damage is a refusal."""

from __future__ import annotations

import stat
import tarfile
import zipfile
from typing import Any, BinaryIO, cast

from tree import CHUNK_BYTES, ArchiveError, BoundedStream, Readable, UnpackedTree

# Headers and padding of an entry in a tar, on top of its data: a header, a long name or PAX records, and half a block.
ENTRY_BYTES = 2048


class StrictTarInfo(tarfile.TarInfo):
    """A tar header. The library takes a broken one in the middle for the end of the archive and says nothing."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        try:
            header = super().fromtarfile(tarfile)
        except BROKEN as error:
            raise ArchiveError(f"damaged or cut archive: {error}") from None
        if header.size < 0:  # leads the library back to where it was, for ever
            raise ArchiveError(f"damaged archive: a size of {header.size}")
        return header


# The end of an archive, a block of zeros, is another exception of the same family, so these are named; the stubs don't have them.
BROKEN: tuple[type[Exception], ...] = tuple(
    getattr(tarfile, name)
    for name in ("InvalidHeaderError", "TruncatedHeaderError", "SubsequentHeaderError", "EmptyHeaderError")
)


def unpack_tar(stream: Readable, tree: UnpackedTree) -> None:
    """`stream` is the decompressed tar; it is read once, from front to back."""
    metered = cast(BinaryIO, BoundedStream(stream, tree.limits["total_bytes"] + tree.limits["entries"] * ENTRY_BYTES))
    with tarfile.open(fileobj=metered, mode="r|", tarinfo=StrictTarInfo, bufsize=CHUNK_BYTES, encoding="utf-8") as tar:
        while (member := tar.next()) is not None:
            cast(Any, tar).members = []  # the library keeps them all, which is memory without bound
            tree.entry()
            path = tree.place(member.name)
            if path is None or member.isdir():
                continue
            data = tar.extractfile(member) if member.isreg() else None
            if data is None:
                tree.skipped["link" if member.issym() or member.islnk() else "device"] += 1
            else:
                tree.write(path, member.size, data)


def unpack_zip(stream: BinaryIO, tree: UnpackedTree) -> None:
    """Needs a seekable stream, for a zip's directory is at its end."""
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            tree.entry()
            path = tree.place(member.filename)
            if path is None or member.is_dir():
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):  # 0: written where there are no modes
                tree.skipped["link" if kind == stat.S_IFLNK else "device"] += 1
                continue
            if member.flag_bits & 0x1:
                raise ArchiveError(f"encrypted file {path[:80]!a}")
            with archive.open(member) as data:
                tree.write(path, member.file_size, data)
