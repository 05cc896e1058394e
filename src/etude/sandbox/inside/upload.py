"""A tree of files on its way in: the TREE frames that follow PUT. No link is followed, and no folder replaced by anything else."""

from __future__ import annotations

import os
import posixpath
import stat

from etude.sandbox.inside import fault, files, frames, fresh

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any


class Upload:
    """Frames are taken until the last, also after a failure: one answer is given, at the end."""

    def __init__(self, store: files.FileOperations, stream: int, path: str) -> None:
        self._store, self._stream, self._path = store, stream, path
        self._file: fresh.TemporaryFile | None = None
        self._entry: list[Any] = []  # of the file in the making
        self._folders: list[
            tuple[str, int, int]
        ] = []  # path, mode, mtime_ns: set at the end, or they would bar their own contents
        self._problem: dict[str, Any] | None = None
        self._attempt(self._store.make_folder, path)

    def take(self, frame: frames.Frame) -> bytes | None:
        """The answer, after the last frame."""
        offset = 0
        for entry in frame.head["entries"]:
            size = entry[4]
            if not 0 <= size <= len(frame.blob) - offset:
                raise frames.FrameError(f"an entry of {size} bytes in a frame that holds fewer")
            self._attempt(self._unpack, entry, frame.blob[offset : offset + size])
            offset += size
        if not frame.head["last"]:
            return None
        self._attempt(self._complete)
        for folder in reversed(self._folders):
            self._attempt(self._dress, *folder)
        if self._problem is not None:
            return frames.pack(frames.ERROR, self._stream, self._problem)
        return frames.pack(frames.OK, self._stream, {})

    def _attempt(self, step: Any, *arguments: Any) -> None:
        if self._problem is not None:
            return
        try:
            step(*arguments)
        except (OSError, files.FileRequestError) as error:
            self._problem = fault.explain(error)
            if self._file is not None:
                self._file.drop()
                self._file = None

    def _unpack(self, entry: list[Any], data: bytes) -> None:
        name, kind, mode, mtime_ns, _, target = entry
        if self._file is not None and self._entry[0] == name and kind == "file":
            self._append(data)
            return
        self._complete()
        if name.startswith("/") or not all(part not in ("", ".", "..") for part in name.split("/")):
            raise files.FileRequestError("UserError", f"entry {name!r} is no path below the folder")
        path = posixpath.join(self._path, name)
        if kind == "dir":
            self._store.make_folder(path)
            self._folders.append((path, mode & 0o777, mtime_ns))
        elif kind == "link":
            self._link(path, target)
        elif kind == "file":
            self._file, self._entry = self._store.begin(path), entry
            self._append(data)
        else:
            raise files.FileRequestError("UserError", f"entry {name!r} is a {kind}; file, dir and link can be put")

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        self._store.require_room(len(data))
        self._file.write(data)

    def _complete(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            _, _, mode, mtime_ns, *_ = self._entry
            file.keep(mode & 0o777, mtime_ns)

    def _link(self, path: str, target: str) -> None:
        folder, name = self._store.parent(path, create=True)
        try:
            files.require_no_folder(name, folder, path)
            temporary = fresh.temporary_name()
            os.symlink(target, temporary, dir_fd=folder)
            try:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(temporary, dir_fd=folder)
                raise
        finally:
            os.close(folder)

    def _dress(self, path: str, mode: int, mtime_ns: int) -> None:
        folder, name = self._store.parent(path)
        try:
            fd = files.open_folder(name, folder)
        finally:
            os.close(folder)
        try:
            if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
                os.fchmod(fd, mode)
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        finally:
            os.close(fd)
