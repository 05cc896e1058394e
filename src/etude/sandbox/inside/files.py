"""File operations of the runner. Promise: no link is ever followed and only regular files are opened.

Paths are resolved lexically and then walked one component at a time with O_NOFOLLOW, so nothing inside can lead the runner into
/proc, to a device or to a pipe that never ends. Writing goes to a fresh file that is renamed into place.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat

from etude.sandbox.inside import fresh

TYPE_CHECKING = False  # as in `typing`, without importing it
if TYPE_CHECKING:
    from collections.abc import Iterator

    from etude.sandbox.inside.ground import SandboxPaths

_FORBIDDEN = ("/proc", "/dev", "/sys")
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # to walk through, which needs no right to list
OPEN_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_NEW_FILE_MODE = 0o644
_MAX_DEPTH = 128  # deeper than any repository; bounds the walk of a hostile tree


class FileRequestError(Exception):
    """The request can't be served. `kind` names a class of `etude.sandbox.protocol`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class FileOperations:
    """All paths are inside the sandbox; relative ones start at `workdir`."""

    def __init__(self, ground: SandboxPaths) -> None:
        self._ground = ground

    def resolve(self, path: str) -> str:
        if "\0" in path:
            raise FileRequestError("UserError", f"path {path!r} holds a zero byte")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise FileRequestError("UserError", f"path {path!r} can't be a file's name") from None
        full = posixpath.normpath(posixpath.join(self._ground.workdir, path))
        full = "/" + full.lstrip("/")
        if any(full == tree or full.startswith(tree + "/") for tree in _FORBIDDEN):
            raise FileRequestError("UserError", f"{path}: files under {', '.join(_FORBIDDEN)} are not served")
        return full

    def read(self, path: str, max_bytes: int, offset: int) -> bytes:
        folder, name = self.parent(path)
        try:
            fd = os.open(name, OPEN_TO_READ, dir_fd=folder)
        finally:
            os.close(folder)
        with open(fd, "rb", buffering=0) as file:
            _require_regular(os.fstat(fd), path)
            return _read_up_to(file.fileno(), max_bytes, offset)

    def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Whole or not at all; missing folders are made. Without a mode the file's own stays, and a new file gets 0o644."""
        self._ground.require_room(len(data))
        folder, name = self.parent(path, create=True)
        try:
            if (found := _lstat(name, folder)) is not None:
                _require_regular(found, path)
            if mode is None:
                mode = stat.S_IMODE(found.st_mode) if found is not None else _NEW_FILE_MODE
        except BaseException:
            os.close(folder)
            raise
        file = fresh.TemporaryFile(folder, name)
        try:
            file.write(data)
        except OSError:
            file.drop()
            raise
        file.keep(mode & 0o777)

    def begin(self, path: str) -> fresh.TemporaryFile:
        """A file to take the place of whatever is there, but for a folder."""
        folder, name = self.parent(path, create=True)
        try:
            require_no_folder(name, folder, path)
        except BaseException:
            os.close(folder)
            raise
        return fresh.TemporaryFile(folder, name)

    def make_folder(self, path: str) -> None:
        """With those above it, where they are missing; a file or link in its place is replaced, one above it is refused."""
        base, parts = self._ground.split(self.resolve(path))
        if not parts:
            os.close(os.open(base, _STEP))
            return
        folder, name = self.parent(path, create=True)
        try:
            found = _lstat(name, folder)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                os.unlink(name, dir_fd=folder)
                found = None
            if found is None:
                os.mkdir(name, 0o755, dir_fd=folder)
        finally:
            os.close(folder)

    def require_room(self, size_bytes: int) -> None:
        """Raises OSError(ENOSPC) where no file system does."""
        self._ground.require_room(size_bytes)

    def remove(self, path: str) -> None:
        folder, name = self.parent(path)
        try:
            _remove(folder, name, 0)
        finally:
            os.close(folder)

    def list(self, path: str, recursive: bool, max_entries: int) -> list[tuple[str, str, int, int]]:
        """(path relative to `path`, kind, size, mode) in sorted order of a depth-first walk."""
        found: list[tuple[str, str, int, int]] = []
        for name, status, _ in self.walk(path, recursive):
            if len(found) >= max_entries:
                raise FileRequestError(
                    "OutputLimit", f"{path} holds more than {max_entries} entries; list a folder below it"
                )
            found.append((name, kind_of(status), status.st_size, stat.S_IMODE(status.st_mode)))
        return found

    def stat(self, path: str) -> tuple[str, str, int, int]:
        """As an entry of `list`, with the path as it was asked for."""
        base, parts = self._ground.split(self.resolve(path))
        if not parts:
            status = os.stat(base, follow_symlinks=False)
        else:
            folder, name = self.parent(path)
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            finally:
                os.close(folder)
        return path, kind_of(status), status.st_size, stat.S_IMODE(status.st_mode)

    def export(self, path: str, max_bytes: int) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        left = max_bytes
        for name, status, folder in self.walk(path, recursive=True):
            if not stat.S_ISREG(status.st_mode):
                continue
            try:
                fd = os.open(posixpath.basename(name), OPEN_TO_READ, dir_fd=folder)
            except (FileNotFoundError, PermissionError):
                continue  # removed since it was listed, or closed to its own owner
            try:
                _require_regular(os.fstat(fd), name)
                data = _read_up_to(fd, left + 1, 0)
            finally:
                os.close(fd)
            left -= len(data)
            if left < 0:
                raise FileRequestError("OutputLimit", f"the files under {path} are over {max_bytes} bytes")
            found.append((name, data))
        return found

    def parent(self, path: str, create: bool = False) -> tuple[int, str]:
        """An open folder and a name in it; the caller closes the folder."""
        base, parts = self._ground.split(self.resolve(path))
        if not parts:
            raise FileRequestError("UserError", f"{path!r} names the root or the sandbox' own folder, not a file")
        fd = os.open(base, _STEP)
        for part in parts[:-1]:
            try:
                if create and _lstat(part, fd) is None:
                    os.mkdir(part, 0o755, dir_fd=fd)
                below = os.open(part, _STEP, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd, parts[-1]

    def walk(self, path: str, recursive: bool) -> Iterator[tuple[str, os.stat_result, int]]:
        base, parts = self._ground.split(self.resolve(path))
        if not parts:
            fd = open_folder(base)
        else:
            folder, name = self.parent(path)
            try:
                fd = open_folder(name, folder)
            finally:
                os.close(folder)
        try:
            yield from _walk(fd, "", recursive, 0)
        finally:
            os.close(fd)


def _walk(fd: int, prefix: str, recursive: bool, depth: int) -> Iterator[tuple[str, os.stat_result, int]]:
    for name in sorted(os.listdir(fd)):
        status = _lstat(name, fd)
        if status is None:
            continue  # removed since it was listed
        yield prefix + name, status, fd
        if recursive and stat.S_ISDIR(status.st_mode):
            if depth >= _MAX_DEPTH:
                raise FileRequestError("UserError", f"folders nest deeper than {_MAX_DEPTH}")
            try:
                below = open_folder(name, fd)
            except (FileNotFoundError, PermissionError):
                continue  # removed since it was listed, or closed to its own owner
            try:
                yield from _walk(below, f"{prefix}{name}/", True, depth + 1)
            finally:
                os.close(below)


def _remove(folder: int, name: str, depth: int) -> None:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    if depth >= _MAX_DEPTH:
        raise FileRequestError("UserError", f"folders nest deeper than {_MAX_DEPTH}")
    fd = open_folder(name, folder)
    try:
        for child in os.listdir(fd):
            _remove(fd, child, depth + 1)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=folder)


def open_folder(name: str, folder: int | None = None) -> int:
    """To list it. Not by O_DIRECTORY, with which the gVisor of 2022 follows a link in spite of O_NOFOLLOW."""
    fd = os.open(name, OPEN_TO_READ, dir_fd=folder)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)


def _lstat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _require_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileRequestError("UserError", f"{path} is a {kind_of(status)}, not a regular file")


def require_no_folder(name: str, folder: int, path: str) -> None:
    """Raises Refused where something else would take a folder's place."""
    found = _lstat(name, folder)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise FileRequestError("UserError", f"{path} is a folder; remove it first")


def kind_of(status: os.stat_result) -> str:
    for test, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "dir"), (stat.S_ISLNK, "link")):
        if test(status.st_mode):
            return name
    return "other"


def _read_up_to(fd: int, max_bytes: int, offset: int) -> bytes:
    parts: list[bytes] = []
    while max_bytes > 0 and (data := os.pread(fd, min(max_bytes, 1 << 20), offset)):
        parts.append(data)
        offset += len(data)
        max_bytes -= len(data)
    return b"".join(parts)
