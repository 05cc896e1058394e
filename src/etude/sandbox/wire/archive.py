"""Tar archives and the wire's trees. Archives are read and written here alone: nothing inside ever parses one.

Promise: an archive is looked through whole before any of it is sent; one that leads outside its folder is refused whole.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Iterator
from typing import Any

from etude.core.archives import (
    ArchiveError,
    ArchiveLimits,
    EntryCounter,
    open_tar,
    plain_path,
    require_link_inside,
    tar_content,
    tar_entries,
)
from etude.sandbox.errors import OutputLimit, SandboxError, UserError
from etude.sandbox.inside import frames
from etude.sandbox.wire.exchange import PendingCall, error_of_frame

MOST_ENTRIES = 100_000
_MOST_NAME, _MOST_DEPTH = (
    4096,
    128,
)  # of a name that is put; else a short archive of long names fills this process' memory
_MOST_NAMES = 64 << 20  # bytes of all the names of a download, for the same reason
_MOST_TIME_S = 1 << 33  # what every file system and both runners can say
_KINDS = {"file": "file", "hard link": "file", "folder": "dir", "link": "link"}  # of the reader and of the wire
_PIECE_BYTES = 1 << 20
_FRAME_BYTES = 4 << 20
_FRAME_ENTRIES = 1000

Part = tuple[dict[str, Any], bytes]  # head and raw bytes of a TREE frame


def parts(archive: bytes, most_bytes: int) -> list[Part]:
    """The TREE frames that unpack it. Raises UserError for what must not be unpacked; `most_bytes`: of contents."""
    try:
        with open_tar(io.BytesIO(archive), encoding="utf-8", errors="surrogateescape") as tar:
            return list(_framed(_checked(tar, most_bytes)))
    except ArchiveError as error:
        raise UserError(f"put_tar: {error}") from None
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError, OSError) as error:
        raise UserError(
            f"no tar archive that can be read (compressed ones are to be given uncompressed): {error}"
        ) from None


def _checked(tar: tarfile.TarFile, most_bytes: int) -> list[tuple[list[Any], bytes]]:
    """Entries of the wire with their contents, every one of them looked at."""
    kinds: dict[str, str] = {}  # of every name, and of the folders that names imply
    files: dict[str, bytes] = {}
    entries: list[tuple[list[Any], bytes]] = []
    # A longer name is for the file system inside to refuse.
    counter = EntryCounter(ArchiveLimits(MOST_ENTRIES, most_bytes, _MOST_NAME, _MOST_NAME, _MOST_DEPTH))
    for name, entry_kind, member in tar_entries(tar, counter):
        if abs(member.mtime) > _MOST_TIME_S:
            raise ArchiveError(f"entry {name!r} is of the time {member.mtime:g} s, which no file can have")
        kind = _KINDS[entry_kind]
        _require_place(name, kind, kinds)
        data, target = b"", ""
        if kind == "link":
            require_link_inside(name, target := member.linkname)
        elif entry_kind == "hard link":
            if (first := files.get(plain_path(member.linkname))) is None:
                raise ArchiveError(
                    f"{name} is a hard link to {member.linkname!r}, which is no earlier file of the archive"
                )
            counter.add(name, len(data := first))
        elif kind == "file":
            data = tar_content(tar, member)
        if kind == "file":
            files[name] = data
        entries.append(([name, kind, member.mode & 0o777, int(member.mtime) * 10**9, len(data), target], data))
    return entries


def _require_place(name: str, kind: str, kinds: dict[str, str]) -> None:
    """Each name once, and below folders only."""
    if name in kinds and not (kind == "dir" and kinds[name] == "implied"):
        raise ArchiveError(f"the archive holds {name!r} twice, or something below it before itself")
    above, known = name, None
    while known is None and (above := posixpath.dirname(above)):
        known = kinds.get(above)
        if known not in (None, "dir", "implied"):
            raise ArchiveError(f"entry {name!r} lies below {above!r}, which is a {known}")
        kinds[above] = known or "implied"
    kinds[name] = kind
    if len(kinds) > MOST_ENTRIES:
        raise ArchiveError(
            f"the archive holds more than {MOST_ENTRIES} entries, with the folders that their names imply"
        )


def _framed(entries: list[tuple[list[Any], bytes]]) -> Iterator[Part]:
    batch: list[list[Any]] = []
    pieces: list[bytes] = []
    held = 0
    for entry, data in entries:
        for offset in range(0, max(len(data), 1), _PIECE_BYTES):
            piece = data[offset : offset + _PIECE_BYTES]
            if held + len(piece) > _FRAME_BYTES or len(batch) >= _FRAME_ENTRIES:
                yield {"entries": batch, "last": False}, b"".join(pieces)
                batch, pieces, held = [], [], 0
            batch.append([*entry[:4], len(piece), entry[5]])
            pieces.append(piece)
            held += len(piece)
    yield {"entries": batch, "last": True}, b"".join(pieces)


class Download(PendingCall):
    """GET's frames as an archive. Nothing in it leads outside, no matter who answers."""

    expects = frozenset((frames.TREE, frames.ERROR))

    def __init__(self, max_bytes: int) -> None:
        super().__init__(frames.MAX_FRAME_BYTES)
        self._left, self._names_left = max_bytes, _MOST_NAMES
        self._entries: dict[str, tuple[list[Any], list[bytes]]] = {}
        self._problem: SandboxError | None = None

    def take(self, frame: frames.Frame, descriptors: list[int]) -> None:
        if frame.kind == frames.ERROR:
            self.fail(error_of_frame(frame))
            return
        if self._problem is None:
            self._keep(frame)
        if frame.head.get("last") and not self.answer.done():
            if self._problem is not None:
                self.fail(self._problem)
            else:
                self.answer.set_result((frame, []))

    def archive(self) -> bytes:
        """After the answer. The same tree gives the same bytes: owners and the times of links are left out, other times are whole seconds."""
        held = io.BytesIO()
        with tarfile.open(
            fileobj=held, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
        ) as tar:
            for name, (entry, pieces) in self._entries.items():
                info = tarfile.TarInfo(name)
                info.type = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}[entry[1]]
                info.mode, info.linkname = entry[2] & 0o7777, entry[5]
                info.mtime = 0 if entry[1] == "link" else max(entry[3] // 10**9, 0)
                data = b"".join(pieces)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return held.getvalue()

    def _keep(self, frame: frames.Frame) -> None:
        offset = 0
        for entry in _list(frame.head.get("entries")):
            name, size = _require_entry(entry, len(frame.blob) - offset)
            data = frame.blob[offset : offset + size]
            offset += size
            self._left -= size
            if name not in self._entries:
                self._names_left -= len(name) + len(entry[5])
            if min(self._left, self._names_left) < 0 or (
                name not in self._entries and len(self._entries) >= MOST_ENTRIES
            ):
                self._problem = OutputLimit(
                    f"the tree is over its limit of bytes, of {MOST_ENTRIES} entries or of {_MOST_NAMES} bytes of names"
                )
                self._entries.clear()
                return
            first, pieces = self._entries.setdefault(name, (entry, []))
            goes_on = size > 0 and entry[1] == "file" and next(reversed(self._entries)) == name
            if first[1] != entry[1] or (pieces and not goes_on):
                raise frames.FrameError(f"entry {name!r} came twice")
            pieces.append(data)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise frames.FrameError("a tree without entries")
    return value


def _require_entry(entry: Any, room: int) -> tuple[str, int]:
    """(path, size) of an entry that is one."""
    try:
        name, kind, mode, mtime_ns, size, target = entry
        numbers = all(isinstance(value, int) for value in (mode, mtime_ns, size))
        good = (
            numbers
            and kind in ("file", "dir", "link")
            and plain_path(name) == name
            and name != ""
            and isinstance(target, str)
            and 0 <= size <= room
        )
        f"{name}{target}".encode(errors="surrogateescape")
    except (TypeError, ValueError, AttributeError, ArchiveError):
        good, name, size = False, "", 0
    if not good or (kind != "file" and size):
        raise frames.FrameError(f"entry {entry!r:.200} of a tree")
    return name, size
