"""Unpacks the archive on standard input below the working folder and prints one JSON line: what was written, or why not.

Run as `python -I -S -c <IMPORT of unpack.py> <folder of etude> <limits as JSON> [diff]`, with nothing from the parent's environment. The
process limits itself before it reads the first byte. Exit status: 0 done, 3 refused (the archive's fault), 4 failed (the machine's).
"""

from __future__ import annotations

import bz2
import errno
import gzip
import json
import lzma
import os
import resource
import tarfile
import zipfile
from io import BufferedReader
from typing import Any, cast

from etude.core.archives import (
    EVERY_KIND,
    ArchiveError,
    BoundedStream,
    EntryKind,
    Readable,
    open_tar,
    tar_entries,
    zip_entries,
)
from etude.core.sources.unpacker.changes import unpack_diff
from etude.core.sources.unpacker.tree import CHUNK_BYTES, UnpackedTree

# What the disk or the machine does to us, not the archive; anything else (a name too long, a file where a folder should be) is its doing.
MACHINE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE, errno.ENFILE}
)
# First bytes of what is inside (RFC 1952, bzip2, xz-file-format 2.1.1.1, the properties of the old .lzma, APPNOTE.TXT 4.3.7).
GZIP, BZIP2, XZ, LZMA, ZIP, EMPTY_ZIP = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x5d\0\0", b"PK\3\4", b"PK\5\6"
TAR_MAGIC_AT, TAR_MAGIC = 257, b"ustar"
# Headers and padding of an entry in a tar, on top of its data: a header, a long name or PAX records, and half a block.
ENTRY_BYTES = 2048


def limit_self(limits: dict[str, int]) -> None:
    """Limits that the kernel keeps, whatever the libraries do with the bytes."""
    for what, limit in (
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 32),  # the streams, the file being written, and what the interpreter opens
    ):
        hard = resource.getrlimit(what)[1]
        lower = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (lower, lower))
    os.umask(0o077)


def decompressed(stream: BufferedReader) -> Readable:
    """The stream inside, recognised by its first bytes: names lie."""
    start = stream.peek(TAR_MAGIC_AT + len(TAR_MAGIC))
    if start.startswith(GZIP):
        return gzip.GzipFile(fileobj=stream, mode="rb")
    if start.startswith(BZIP2):
        return bz2.BZ2File(stream)
    if start.startswith((XZ, LZMA)):
        return lzma.LZMAFile(stream)
    return stream


def unpack(stream: BufferedReader, tree: UnpackedTree, diff: bool) -> None:
    """Raises Refused, and what the libraries raise."""
    start = stream.peek(TAR_MAGIC_AT + len(TAR_MAGIC))
    inside = decompressed(stream)
    if diff:
        unpack_diff(inside, tree)
    elif start.startswith((ZIP, EMPTY_ZIP)):
        unpack_zip(stream, tree)
    elif inside is not stream or start[TAR_MAGIC_AT:].startswith(TAR_MAGIC):
        unpack_tar(inside, tree)
    else:
        raise ArchiveError(f"not an archive of a known kind; it starts with {start[:8].hex(' ') or 'nothing'}")


def unpack_tar(stream: Readable, tree: UnpackedTree) -> None:
    """`stream` is the decompressed tar; it is read once, from front to back."""
    metered = BoundedStream(stream, tree.limits["total_bytes"] + tree.limits["entries"] * ENTRY_BYTES)
    try:
        with open_tar(metered, mode="r|", bufsize=CHUNK_BYTES, encoding="utf-8") as tar:
            for path, kind, member in tar_entries(tar, tree.counter, EVERY_KIND):
                data = tar.extractfile(member) if _is_wanted(path, kind, tree) else None
                if data is not None:
                    tree.write(path, member.size, data)
    except tarfile.TarError as error:
        raise ArchiveError(f"damaged or cut archive: {error}") from None


def unpack_zip(stream: BufferedReader, tree: UnpackedTree) -> None:
    """Needs a seekable stream, for a zip's directory is at its end."""
    with zipfile.ZipFile(stream) as archive:
        for path, kind, member in zip_entries(archive, tree.counter, EVERY_KIND):
            if not _is_wanted(path, kind, tree):
                continue
            if member.flag_bits & 0x1:
                raise ArchiveError(f"encrypted file {path[:80]!a}")
            with archive.open(member) as data:
                tree.write(path, member.file_size, data)


def _is_wanted(path: str, kind: EntryKind, tree: UnpackedTree) -> bool:
    """Files with a name that a text can have; all else but folders is counted as skipped."""
    if not tree.has_printable_name(path) or kind == "folder":
        return False
    if kind != "file":
        tree.skipped["device" if kind == "device" else "link"] += 1
    return kind == "file"


def main(arguments: list[str]) -> int:
    """`arguments`: the limits as JSON, and "diff" for a diff."""
    limits: dict[str, int] = json.loads(arguments[0])
    limit_self(limits)
    tree = UnpackedTree(limits)
    answer: dict[str, Any]
    try:
        unpack(cast(BufferedReader, open(0, "rb", buffering=CHUNK_BYTES)), tree, arguments[1:] == ["diff"])
        code, answer = 0, {"files": tree.files, "bytes": tree.bytes, "skipped": tree.skipped}
    except ArchiveError as refusal:
        code, answer = 3, {"reason": str(refusal)}
    except MemoryError:
        code, answer = 3, {"reason": f"needs more than {limits['memory_bytes']:,} bytes of memory to unpack"}
    except OSError as error:
        if error.errno in MACHINE_ERRORS:
            code, answer = 4, {"reason": str(error)}
        else:  # BadGzipFile and bz2's "Invalid data stream" are OSErrors too
            code, answer = 3, {"reason": f"damaged archive: {error}"[:300]}
    except Exception as error:  # noqa: BLE001 - whatever a library raises on a stranger's bytes is about the bytes
        code, answer = 3, {"reason": f"damaged archive: {type(error).__name__}: {error}"[:300]}
    print(json.dumps(answer), flush=True)
    return code
