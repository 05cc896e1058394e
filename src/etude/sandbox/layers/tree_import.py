"""A tree copied into a draft, in one pass that reads, hashes and writes each file once: the hot path of a fork.

The tree may be anybody's work. Every name is opened without following links, relative to the folder it was found in; what is neither
file, folder nor link (a pipe, a socket, a device) is left out, and what lower layers have under its name is hidden, as its maker saw it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable

from etude.sandbox.layers import overlay
from etude.sandbox.layers.bounds import Bounds, BoundsCounter
from etude.sandbox.layers.draft import MODE_BITS, LayerDraft
from etude.sandbox.layers.errors import UnsafeContent
from etude.sandbox.layers.manifest import LayerEntry, LayerManifest
from etude.sandbox.layers.tree import CREATE, FOLDER, PIECE_BYTES, READ, enter_folder, open_anyway, read_entry, walk


class TreeImporter:
    """One pass over one tree. `below`: whether the chain below it shows something at a path."""

    def __init__(self, draft: LayerDraft, bounds: Bounds, below: Callable[[str], bool]) -> None:
        self._draft, self._tally, self._below_has = draft, BoundsCounter(bounds), below
        self._seen: dict[tuple[int, int], tuple[str, LayerEntry]] = {}  # files with several names

    def take(self, source: int) -> None:
        """`source`: a descriptor of the tree's root. The tree must not change meanwhile. Raises Hostile, OSError."""
        self._folder(source, self._draft.tree, "")

    def _folder(self, source: int, target: int, prefix: str) -> None:
        with os.scandir(source) as found:
            names = [entry.name for entry in found]
        for name in names:
            path = prefix + name
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
            kind = stat.S_IFMT(status.st_mode)
            self._tally.add(path, status.st_size if kind == stat.S_IFREG else 0)
            if kind == stat.S_IFREG:
                self._file(source, target, name, path, status)
            elif kind == stat.S_IFDIR:
                self._below(source, target, name, path, status)
            elif kind == stat.S_IFLNK:
                goal = os.readlink(name, dir_fd=source)
                self._draft.link(goal, name, target)
                self._draft.note(LayerEntry(path, "link", content=goal))
            elif overlay.is_whiteout(status) or self._below_has(path):
                overlay.make_whiteout(name, target)
                self._draft.note(LayerEntry(path, "gone"))

    def _below(self, source: int, target: int, name: str, path: str, status: os.stat_result) -> None:
        with enter_folder(name, source) as theirs:
            opaque, own = _attributes(theirs, path)
            os.mkdir(name, 0o700, dir_fd=target)
            ours = os.open(name, FOLDER, dir_fd=target)
            try:
                self._folder(theirs, ours, f"{path}/")
                overlay.dress(ours, opaque, own)
                self._draft.finish_entry(ours, status.st_mode, status.st_mtime_ns)
            finally:
                os.close(ours)
        self._draft.note(LayerEntry(path, "dir", status.st_mode & MODE_BITS, opaque=opaque, attributes=own))

    def _file(self, source: int, target: int, name: str, path: str, status: os.stat_result) -> None:
        if status.st_nlink > 1 and (known := self._seen.get((status.st_dev, status.st_ino))) is not None:
            first, entry = known
            os.link(first, name, src_dir_fd=self._draft.tree, dst_dir_fd=target, follow_symlinks=False)
            self._draft.note(
                LayerEntry(path, "file", entry.mode, entry.size, entry.content, attributes=entry.attributes),
                self._draft.times[first],
            )
            return
        theirs = open_anyway(name, source, READ)
        try:
            if not stat.S_ISREG(os.fstat(theirs).st_mode):
                raise UnsafeContent(f"{path} changed while it was read")
            _, own = _attributes(theirs, path)
            ours = os.open(name, CREATE, 0o600, dir_fd=target)
            try:
                size, content = copy(theirs, ours)
                overlay.dress(ours, False, own)
                mtime_ns = self._draft.finish_entry(ours, status.st_mode, status.st_mtime_ns)
            finally:
                os.close(ours)
        finally:
            os.close(theirs)
        if size > status.st_size:
            self._tally.add(path, size - status.st_size)
        entry = LayerEntry(path, "file", status.st_mode & MODE_BITS, size, content, attributes=own)
        self._draft.note(entry, mtime_ns)
        if status.st_nlink > 1:
            self._seen[status.st_dev, status.st_ino] = path, entry


def copy(theirs: int, ours: int) -> tuple[int, str]:
    """Size and sha256 of what was copied. Stretches of zeros stay holes."""
    return copy_from(lambda size: os.read(theirs, size), ours)


def copy_from(read: Callable[[int], bytes], ours: int) -> tuple[int, str]:
    """The same, out of anything that is read in pieces."""
    data = read(PIECE_BYTES)
    if len(data) < PIECE_BYTES:  # nearly every file: one read, one write
        write_all(ours, data)
        return len(data), hashlib.sha256(data).hexdigest()
    digest, size = hashlib.sha256(), 0
    while data:
        digest.update(data)
        if data.count(0) == len(data):
            os.lseek(ours, len(data), os.SEEK_CUR)
        else:
            write_all(ours, data)
        size += len(data)
        data = read(PIECE_BYTES)
    os.ftruncate(ours, size)
    return size, digest.hexdigest()


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _attributes(fd: int, path: str) -> tuple[bool, tuple[tuple[str, str], ...]]:
    try:
        opaque, own = overlay.attributes(fd)
        overlay.require_small(own)
        return opaque, own
    except ValueError as error:
        raise UnsafeContent(f"{path}: {error}") from None


def survey_tree(upper: int, bounds: Bounds, below: Callable[[str], bool]) -> LayerManifest:
    """`upper`: its descriptor; `below`: whether the chain below it shows something at a path. Raises Hostile, OSError."""
    tally, found = BoundsCounter(bounds), []
    for path, folder, name in walk(upper):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = stat.S_IFMT(status.st_mode)
        tally.add(path, status.st_size if kind == stat.S_IFREG else 0)
        if kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK) or overlay.is_whiteout(status):
            found.append(read_entry(path, folder, name))
        elif below(path):
            found.append(LayerEntry(path, "gone"))
    return LayerManifest.of(found)
