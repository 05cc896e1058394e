"""Archives of other people: one reader for all of them, with limits. What is taken from an archive goes through here.

Promises: a path is relative and stays below its folder; entries, bytes, path length and depth have limits; a device or a pipe is refused unless
the caller handles it; a cut or damaged tar is an error and never a shorter archive. Memory does not grow with the number of entries.
Standard library only: the child process of `core/sources/unpack.py` imports this module without any package.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from typing import IO, Any, Literal, NamedTuple, Protocol, cast

EntryKind = Literal["file", "folder", "link", "hard link", "device"]
USUAL_KINDS: tuple[EntryKind, ...] = ("file", "folder", "link", "hard link")
EVERY_KIND: tuple[EntryKind, ...] = (*USUAL_KINDS, "device")
_SHOWN = 80  # characters of a path in a message


class ArchiveError(Exception):
    """The archive can't be taken. The message is the reason, for a person."""


class Readable(Protocol):
    """All that is asked of a stream of bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


class ArchiveLimits(NamedTuple):  # no dataclass: its import costs the child process 10 ms
    """What one archive may hold. `total_bytes` counts files by the size that their header states."""

    entries: int
    total_bytes: int
    path_bytes: int = 4095  # the kernel's own limits
    name_bytes: int = 255
    depth: int = 128  # deeper than any repository; bounds descriptors and recursion on a hostile tree


class EntryCounter:
    """Counts entries of one archive or tree. Raises ArchiveError beyond the limits."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits, self._entries, self._bytes = limits, 0, 0

    def add(self, path: str, size_bytes: int = 0) -> None:
        """Each entry counts, also an empty or a skipped one: a million empty folders cost as much as files."""
        limits = self._limits
        self._entries += 1
        self._bytes += size_bytes
        if self._entries > limits.entries:
            raise ArchiveError(f"more than {limits.entries:,} entries; take a smaller archive")
        if self._bytes > limits.total_bytes:
            raise ArchiveError(f"more than {limits.total_bytes:,} bytes unpacked, with {path[:_SHOWN]!a}")
        if (size := len(os.fsencode(path))) > limits.path_bytes:
            raise ArchiveError(f"path longer than {limits.path_bytes:,} bytes, a path of {size:,}: {path[:_SHOWN]!a} …")
        if len(os.fsencode(path.rpartition("/")[2])) > limits.name_bytes:
            raise ArchiveError(f"name longer than {limits.name_bytes:,} bytes: {path[:_SHOWN]!a} …")
        if path.count("/") >= limits.depth:
            raise ArchiveError(f"folders nest deeper than {limits.depth}: {path[:_SHOWN]!a} …")


class BoundedStream:
    """A decompressed stream that refuses to go on past any length that an honest archive within the limits has."""

    def __init__(self, stream: Readable, most_bytes: int) -> None:
        self._stream, self._most_bytes, self._count = stream, most_bytes, 0

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self._count += len(data)
        if self._count > self._most_bytes:
            raise ArchiveError(f"more than {self._most_bytes:,} bytes unpacked")
        return data


def plain_path(name: str) -> str:
    """Relative and without dots; "" for the folder itself. Raises ArchiveError for a path that leads out."""
    if "\0" in name:
        raise ArchiveError(f"NUL in the path {name[:_SHOWN]!a}")
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        raise ArchiveError(f"path {name[:_SHOWN]!a} leads out of the folder; paths must be relative and without '..'")
    return "/".join(part for part in parts if part not in ("", "."))


def require_link_inside(path: str, target: str) -> None:
    """A link may go up through real folders first, then down. Raises ArchiveError where it leaves the folder, or could."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    if not target or target.startswith("/") or "\0" in target or ".." in parts[up:] or up > path.count("/"):
        raise ArchiveError(f"link {path[:_SHOWN]!r} to {target[:_SHOWN]!r} leads out of the folder, or may")


# Tar: read with the standard library, whose guesses about broken archives are overruled. It takes a header that is cut or damaged for the
# end of the archive and says nothing, unless it is the first one. The stubs lack these exceptions; the end as it should be is another one.
_EMPTY, _CUT, _BAD = (
    cast(type[Exception], getattr(tarfile, name))
    for name in ("EmptyHeaderError", "TruncatedHeaderError", "InvalidHeaderError")
)


class StrictHeader(tarfile.TarInfo):
    """A header that is whole, of an archive that ends with a block of zeros."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        return _header(super().fromtarfile, tarfile, marked=True)


class ProvenHeader(tarfile.TarInfo):
    """The same of an archive whose digest is known: it may lack the mark of its end."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        return _header(super().fromtarfile, tarfile, marked=False)


class TarEntry(NamedTuple):
    """`path` is checked; all else of `member` is the archive's word."""

    path: str
    kind: EntryKind
    member: tarfile.TarInfo


class ZipEntry(NamedTuple):
    """`path` is checked; all else of `member` is the archive's word."""

    path: str
    kind: EntryKind
    member: zipfile.ZipInfo


def open_tar(
    file: Readable, *, proven: bool = False, mode: Literal["r:", "r|"] = "r:", **options: Any
) -> tarfile.TarFile:
    """An archive that isn't compressed, to read; `mode` "r|" never seeks. Raises tarfile.TarError, here and while it is read."""
    header = ProvenHeader if proven else StrictHeader
    return tarfile.open(fileobj=cast(IO[bytes], file), mode=cast(Any, mode), tarinfo=header, **options)


def tar_entries(
    archive: tarfile.TarFile, counter: EntryCounter, takes: Collection[EntryKind] = USUAL_KINDS
) -> Iterator[TarEntry]:
    """Entries in their order, without the folder itself. Raises ArchiveError, also for a kind that is not in `takes`; tarfile.TarError."""
    while (member := archive.next()) is not None:
        cast(Any, archive).members = []  # the library keeps them all, which is memory without bound
        path, kind = plain_path(member.name), _tar_kind(member)
        counter.add(path, member.size if kind == "file" and "file" in takes else 0)
        if _is_taken(path, kind, takes):
            yield TarEntry(path, kind, member)


def zip_entries(
    archive: zipfile.ZipFile, counter: EntryCounter, takes: Collection[EntryKind] = USUAL_KINDS
) -> Iterator[ZipEntry]:
    """The same of a zip archive."""
    for member in archive.infolist():
        path, kind = plain_path(member.filename), _zip_kind(member)
        counter.add(path, member.file_size if kind == "file" and "file" in takes else 0)
        if _is_taken(path, kind, takes):
            yield ZipEntry(path, kind, member)


def tar_content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """All bytes of a file. Raises ArchiveError where the archive ends before."""
    source = archive.extractfile(member)
    data = source.read() if source is not None else b""
    if len(data) != member.size:
        raise ArchiveError(f"the archive ends in the middle of {member.name[:_SHOWN]!a}; get it again")
    return data


def _is_taken(path: str, kind: EntryKind, takes: Collection[EntryKind]) -> bool:
    """False for the folder itself. Raises ArchiveError."""
    if kind not in takes:
        raise ArchiveError(f"{path[:_SHOWN]!a} is a {kind}; an archive may hold {', '.join(takes)} here")
    if path == "" and kind != "folder":
        raise ArchiveError(f"a {kind} without a name would take the folder's own place")
    return path != ""


def _tar_kind(member: tarfile.TarInfo) -> EntryKind:
    if member.isreg():
        return "file"
    if member.isdir():
        return "folder"
    return "link" if member.issym() else "hard link" if member.islnk() else "device"


def _zip_kind(member: zipfile.ZipInfo) -> EntryKind:
    if member.is_dir():
        return "folder"
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind in (0, stat.S_IFREG):  # 0: written where there are no modes
        return "file"
    return "link" if kind == stat.S_IFLNK else "device"


def _header(read: Any, archive: Any, *, marked: bool) -> Any:
    try:
        header = read(archive)
    except _CUT as error:
        raise tarfile.ReadError(f"it is cut in a header, {_place(archive)}; get it again from where it came") from error
    except _BAD as error:
        raise tarfile.ReadError(f"{error}, {_place(archive)}") from error
    except _EMPTY as error:
        if not marked and archive.offset:
            raise
        raise tarfile.ReadError(
            f"it ends {_place(archive)}, without the block of zeros that ends an archive: it is empty or cut; get it again"
        ) from error
    if header.size < 0:  # leads the library back to where it was, for ever
        raise tarfile.ReadError(f"a header with a size of {header.size}, {_place(archive)}")
    return header


def _place(archive: Any) -> str:
    return f"at byte {archive.offset:,}"
