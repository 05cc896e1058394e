"""A tar archive of a layer, written into a draft. The archive may be anybody's: nothing of it reaches outside, whatever it says.

Names are relative, without `..`, and every folder on the way is opened without following links. Devices and pipes are refused, but for
those below `dev/` of a whole root, which are left out: every sandbox has its own. Whiteouts are those of container images
(`.wh.name`, `.wh..wh..opq`). The archive is read once, in pieces, and never trusted with memory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
from collections.abc import Callable
from typing import IO, Any

from etude.core.archives import EVERY_KIND, ArchiveError, EntryKind, open_tar, plain_path, tar_entries
from etude.sandbox.layers import overlay
from etude.sandbox.layers.blobs import BROKEN
from etude.sandbox.layers.bounds import Bounds, BoundsCounter
from etude.sandbox.layers.draft import MODE_BITS, LayerDraft
from etude.sandbox.layers.errors import UnsafeContent
from etude.sandbox.layers.manifest import LayerEntry
from etude.sandbox.layers.tree import CREATE, FOLDER, PIECE_BYTES, LayerTree
from etude.sandbox.layers.tree_import import copy_from

GONE, OPAQUE = ".wh.", ".wh..wh..opq"
_ATTRIBUTE = "SCHILY.xattr."
_MOST_AT_ONCE = 4 << 20  # an extended header may say that it is gigabytes long
_NEW_FOLDER = 0o755
_MOST_HEADER_BYTES = 16 << 10  # of one entry: long names, attributes
_ITS_DOING = (
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.EINVAL,
    errno.ERANGE,
    errno.E2BIG,
)  # a link to nothing, too long a target


class HashingReader:
    """A stream, forwards only, that gives no more than a little at once (a header's word is not taken for its size) and is hashed."""

    def __init__(self, raw: IO[bytes], most_bytes: int) -> None:
        self._raw, self._most_bytes = raw, most_bytes
        self._at, self._digest = 0, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MOST_AT_ONCE:
            raise UnsafeContent(f"a header of {size} bytes")
        data = self._raw.read(size)
        self._digest.update(data)
        self._at += len(data)
        if self._at > self._most_bytes:
            raise UnsafeContent(f"the archive is over {self._most_bytes} bytes, more than what it may hold needs")
        return data

    def tell(self) -> int:
        return self._at

    def seek(self, to: int) -> int:
        while self._at < to and self.read(min(to - self._at, PIECE_BYTES)):
            pass
        return self._at

    def rest(self) -> str:
        """The sha256 of all of it, read to its end."""
        while self.read(PIECE_BYTES):
            pass
        return self._digest.hexdigest()


def unpack(
    source: IO[bytes], draft: LayerDraft, bounds: Bounds, below: Callable[[str], bool], *, proven: bool = False
) -> str:
    """The sha256 of the archive. `below`: whether the chain under this layer shows something at a path. `proven`: the caller compares the
    sha256 with the one that it knows. Raises UnsafeContent, OSError."""
    stream: Any = HashingReader(source, archive_bytes(bounds))
    try:
        with open_tar(stream, proven=proven, errorlevel=2) as archive, LayerTree(draft.tree) as tree:
            _Unpacking(archive, draft, tree, BoundsCounter(bounds), below).all()
        return stream.rest()
    except ArchiveError as error:
        raise UnsafeContent(str(error)) from None
    except (tarfile.TarError, *BROKEN, ValueError, OverflowError, RecursionError) as error:
        raise UnsafeContent(f"the archive can't be read: {error}") from error
    except OSError as error:
        if error.errno not in _ITS_DOING:
            raise
        raise UnsafeContent(f"the archive holds what no folder can: {error}") from error


def archive_bytes(bounds: Bounds) -> int:
    """The size of the largest archive, uncompressed, that keeps to them: a small file may say that it is terabytes of nothing."""
    return bounds.max_bytes + bounds.max_entries * _MOST_HEADER_BYTES


class _Unpacking:
    def __init__(
        self,
        archive: tarfile.TarFile,
        draft: LayerDraft,
        tree: LayerTree,
        tally: BoundsCounter,
        below: Callable[[str], bool],
    ) -> None:
        self._archive, self._draft, self._tree, self._tally, self._below = archive, draft, tree, tally, below
        self._found: dict[str, LayerEntry] = {}
        self._folder_times: dict[str, int] = {}

    def all(self) -> None:
        for path, kind, member in tar_entries(self._archive, self._tally, EVERY_KIND):
            self._member(path, kind, member)
        for path in sorted((p for p, e in self._found.items() if e.kind == "dir"), key=os.fsencode, reverse=True):
            self._close(self._found[path])
        for entry in self._found.values():
            self._draft.note(entry, self._draft.times.get(entry.path, 0))

    def _member(self, path: str, kind: EntryKind, member: tarfile.TarInfo) -> None:
        folder, _, name = path.rpartition("/")
        if name == OPAQUE:
            self._make_folders(folder)
            if folder:
                there = self._found[folder]
                self._found[folder] = LayerEntry(folder, "dir", there.mode, opaque=True, attributes=there.attributes)
            return
        if name.startswith(GONE):
            self._hide(f"{folder}/{name[len(GONE) :]}".lstrip("/"))
            return
        self._make_folders(folder)
        if kind == "folder":
            self._folder(path, member)
        elif kind != "device":
            self._clear(path)
            parent, name = self._tree.parent(path)
            if kind == "link":
                self._draft.link(member.linkname, name, parent)
                self._found[path] = LayerEntry(path, "link", content=member.linkname)
            elif kind == "hard link":
                self._same(path, plain_path(member.linkname), parent, name)
            else:
                self._file(path, member, parent, name)
        elif not path.startswith("dev/"):
            raise UnsafeContent(f"{path} is a device or a pipe")

    def _file(self, path: str, member: tarfile.TarInfo, parent: int, name: str) -> None:
        source = self._archive.extractfile(member)
        assert source is not None  # a regular member has a content
        own = _attributes(member)
        fd = os.open(name, CREATE, 0o600, dir_fd=parent)
        try:
            size, content = copy_from(source.read, fd)
            if size != member.size:
                raise UnsafeContent(f"{path}: the archive ends in the middle of it")
            overlay.dress(fd, False, own)
            self._draft.times[path] = self._draft.finish_entry(fd, member.mode, _time(member))
        finally:
            os.close(fd)
        self._found[path] = LayerEntry(path, "file", member.mode & MODE_BITS, size, content, attributes=own)

    def _same(self, path: str, first: str, parent: int, name: str) -> None:
        """Another name of a file that came before."""
        entry = self._found.get(first)
        if entry is None or entry.kind != "file":
            raise UnsafeContent(f"{path} is another name of {first!r}, which is no file of this archive")
        os.link(first, name, src_dir_fd=self._draft.tree, dst_dir_fd=parent, follow_symlinks=False)
        self._found[path] = LayerEntry(path, "file", entry.mode, entry.size, entry.content, attributes=entry.attributes)
        self._draft.times[path] = self._draft.times[first]

    def _folder(self, path: str, member: tarfile.TarInfo) -> None:
        there = self._found.get(path)
        if there is None or there.kind != "dir":
            self._clear(path)
            parent, name = self._tree.parent(path)
            os.mkdir(name, 0o700, dir_fd=parent)
        opaque = there is not None and there.opaque
        own = _attributes(member)
        self._found[path] = LayerEntry(path, "dir", member.mode & MODE_BITS, opaque=opaque, attributes=own)
        self._folder_times[path] = _time(member)

    def _make_folders(self, folder: str) -> None:
        """Those that the archive did not name. Raises UnsafeContent where a link or a file is on the way."""
        parts = folder.split("/") if folder else []
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            there = self._found.get(path)
            if there is None:
                self._tally.add(path)
                parent, name = self._tree.parent(path)
                os.mkdir(name, 0o700, dir_fd=parent)
                self._found[path] = LayerEntry(path, "dir", _NEW_FOLDER)
            elif there.kind != "dir":
                raise UnsafeContent(f"{folder} leads through {path}, which is a {there.kind}")

    def _hide(self, path: str) -> None:
        if not plain_path(path):
            raise UnsafeContent("a whiteout without a name")
        if path not in self._found and self._below(path):
            self._make_folders(os.path.dirname(path))
            parent, name = self._tree.parent(path)
            overlay.make_whiteout(name, parent)
            self._found[path] = LayerEntry(path, "gone")

    def _clear(self, path: str) -> None:
        """Make room for a second entry of the same name: the last one counts. A folder with something in it stays, which is refused."""
        there = self._found.pop(path, None)
        if there is None:
            return
        parent, name = self._tree.parent(path)
        try:
            os.rmdir(name, dir_fd=parent) if there.kind == "dir" else os.unlink(name, dir_fd=parent)
        except OSError as error:
            raise UnsafeContent(
                f"{path} comes twice, as a folder with something in it and as something else"
            ) from error

    def _close(self, entry: LayerEntry) -> None:
        parent, name = self._tree.parent(entry.path)
        fd = os.open(name, FOLDER, dir_fd=parent)
        try:
            overlay.dress(fd, entry.opaque, entry.attributes)
            self._draft.finish_entry(fd, entry.mode, self._folder_times.get(entry.path, 0))
        finally:
            os.close(fd)


def _time(member: tarfile.TarInfo) -> int:
    return min(max(int(member.mtime * 1e9), 0), (1 << 62))


def _attributes(member: tarfile.TarInfo) -> tuple[tuple[str, str], ...]:
    """user.* attributes, as Python and GNU tar write them; never an overlay's own marks."""
    found = []
    for key, value in member.pax_headers.items():
        name = key.removeprefix(_ATTRIBUTE)
        if name != key and name.startswith("user.") and not name.startswith(overlay.RESERVED):
            found.append((name, value.encode(errors="surrogateescape").hex()))
    own = tuple(sorted(found))
    overlay.require_small(own)
    return own
