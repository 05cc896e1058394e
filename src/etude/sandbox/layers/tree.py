"""Walking and opening what others may have made: no link is followed, nothing that could block is opened."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etude.sandbox.layers import overlay
from etude.sandbox.layers.manifest import LayerEntry

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PIECE_BYTES = 1 << 20


class LayerTree:
    """A layer's tree (or any other), its folders opened one component at a time; the last one stays open."""

    def __init__(self, root: Path | int) -> None:
        self._root = os.open(root, FOLDER) if isinstance(root, Path) else os.dup(root)
        self._path, self._fd = "", self._root

    def parent(self, path: str) -> tuple[int, str]:
        """The folder that holds `path`, valid until the next call, and the name there. Raises OSError, also for a link on the way."""
        folder, _, name = path.rpartition("/")
        if folder != self._path:
            fd = os.dup(self._root)
            for part in folder.split("/") if folder else ():
                above, fd = fd, -1
                try:
                    fd = open_anyway(part, above, FOLDER)
                finally:
                    os.close(above)
            self._leave()
            self._path, self._fd = folder, fd
        return self._fd, name

    def open(self, path: str) -> int:
        """A regular file, to read."""
        folder, name = self.parent(path)
        return open_anyway(name, folder, READ)

    def _leave(self) -> None:
        if self._fd != self._root:
            os.close(self._fd)
        self._path, self._fd = "", self._root

    def close(self) -> None:
        self._leave()
        os.close(self._root)

    def __enter__(self) -> LayerTree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def walk(tree: Path | int) -> Iterator[tuple[str, int, str]]:
    """(path, folder's descriptor, name) of everything below, in no order; also below folders that are closed to their own owner."""
    root = os.open(tree, FOLDER) if isinstance(tree, Path) else os.dup(tree)
    try:
        yield from _walk(root, "")
    finally:
        os.close(root)


def _walk(folder: int, prefix: str) -> Iterator[tuple[str, int, str]]:
    for name in os.listdir(folder):
        yield prefix + name, folder, name
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            with enter_folder(name, folder) as fd:
                yield from _walk(fd, f"{prefix}{name}/")


@contextmanager
def enter_folder(name: str, folder: int) -> Iterator[int]:
    """A folder's descriptor; meanwhile its owner may look into it, whatever its mode says before and after."""
    fd = open_anyway(name, folder, FOLDER)
    status = os.fstat(fd)
    mode = stat.S_IMODE(status.st_mode)
    closed = mode & 0o500 != 0o500 and status.st_uid == os.geteuid() != 0
    try:
        if closed:
            os.fchmod(fd, mode | 0o500)
        yield fd
    finally:
        if closed:
            os.fchmod(fd, mode)
        os.close(fd)


def open_anyway(name: str, folder: int, flags: int) -> int:
    """Open what is ours, also where its mode keeps even its owner out; the mode is the same afterwards."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid():
            raise
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        path = f"/proc/self/fd/{handle}"
        try:
            os.chmod(path, stat.S_IMODE(status.st_mode) | 0o700)
            fd = os.open(name, flags, dir_fd=folder)
            os.fchmod(fd, stat.S_IMODE(status.st_mode))
            return fd
        finally:
            os.close(handle)


def read_entry(path: str, folder: int, name: str) -> LayerEntry:
    """What lies there, every byte of it read."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if overlay.is_whiteout(status):
        return LayerEntry(path, "gone")
    if stat.S_ISLNK(status.st_mode):
        return LayerEntry(path, "link", content=os.readlink(name, dir_fd=folder))
    is_folder = stat.S_ISDIR(status.st_mode)
    fd = open_anyway(name, folder, FOLDER if is_folder else READ)
    try:
        opaque, own = overlay.attributes(fd)
        mode = stat.S_IMODE(status.st_mode)
        if is_folder:
            return LayerEntry(path, "dir", mode, opaque=opaque, attributes=own)
        digest = hashlib.sha256()
        while piece := os.read(fd, PIECE_BYTES):
            digest.update(piece)
        return LayerEntry(path, "file", mode, status.st_size, digest.hexdigest(), attributes=own)
    finally:
        os.close(fd)


def remove_tree(folder: Path) -> None:
    """All of it, also below folders that their own owner may not enter or change. No link is followed."""

    def insist(function: object, path: str, error: object) -> None:
        os.chmod(os.path.dirname(path), 0o700)
        if not os.path.islink(path) and os.path.isdir(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path)
        else:
            os.unlink(path)

    shutil.rmtree(folder, onerror=insist)
