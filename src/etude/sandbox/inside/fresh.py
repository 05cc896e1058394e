"""Whole-file writes: a file is written under a temporary name in the same folder, then renamed, so that no reader sees half of it."""

from __future__ import annotations

import os

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFile:
    """`folder` is an open descriptor, which becomes its own. End it with `keep` or `drop`."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder, self._name = folder, name
        self._temporary = temporary_name()
        try:
            self._fd = os.open(self._temporary, _CREATE, 0o600, dir_fd=folder)
        except OSError:
            os.close(folder)
            raise

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def keep(self, mode: int, mtime_ns: int | None = None) -> None:
        """It takes its place. Raises OSError, and is dropped then."""
        try:
            os.fchmod(self._fd, mode)
            if mtime_ns is not None:
                os.utime(self._fd, ns=(mtime_ns, mtime_ns))
            os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError:
            self.drop()
            raise
        self._close()

    def drop(self) -> None:
        try:
            os.unlink(self._temporary, dir_fd=self._folder)
        except FileNotFoundError:
            return  # somebody inside was quicker
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._fd)
        os.close(self._folder)


def temporary_name() -> str:
    return f".etude-{os.urandom(6).hex()}"
