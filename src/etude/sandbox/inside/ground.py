"""Where the sandbox' own folders really lie, and what is looked at while a command runs.

With a mount namespace a path inside is the path. The process back end has none: there `/work` and `/tmp` are folders elsewhere, which
only the runner's file interface maps; commands see the real ones.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

INODES_PER_MB = 256  # one 4 KiB page each: files of one block fill size and inodes together


_OTHERS = ("/dev", "/dev/shm")  # writable file systems in memory of containers, besides workdir and /tmp


def mounted(spec: dict[str, Any]) -> list[str]:
    """Folders whose file systems somebody else mounted: each has the whole size, and none a number of inodes."""
    return [*([] if spec["bound"] else [spec["workdir"]]), "/tmp", *_OTHERS]


class SandboxPaths:
    """`folders`: path inside -> real folder, none where they are the same. `confine`: what a command's process does before it starts."""

    def __init__(self, spec: dict[str, Any], folders: dict[str, str] | None = None) -> None:
        self._spec, self._folders = spec, folders or {}
        self.workdir: str = spec["workdir"]
        self.tmp = self.real("/tmp")
        self.environment: dict[str, str] = {}
        self.confine: Callable[[], None] | None = None
        self.require_process: Callable[[], None] = lambda: None  # raises OSError(EAGAIN) where no fork does
        self.gather: Callable[[], None] = lambda: None  # what a supervisor does where the kernel has no subreapers
        self._seen = (0, 0)  # bytes and entries at the last look
        self.elsewhere = 0  # processes that the kernel counts with ours, because they have the same user
        self.require_room: Callable[[int], None] = lambda size_bytes: (
            None
        )  # raises OSError(ENOSPC) where no file system does
        self.excess: Callable[[], str] = lambda: (
            ""
        )  # what a mount option or the kernel does not bound: a reason to kill, or ""

    def real(self, path: str) -> str:
        base, parts = self.split(path)
        return os.path.join(base, *parts)

    def split(self, path: str) -> tuple[str, list[str]]:
        """A folder that may be opened by name, and the components to walk below it."""
        for inside, folder in self._folders.items():
            if path == inside or path.startswith(inside + "/"):
                return folder, [part for part in path[len(inside) :].split("/") if part]
        return "/", [part for part in path.split("/") if part]

    def mounted_excess(self) -> str:
        """See `mounted`."""
        size = count = 0
        devices = set()
        for path in mounted(self._spec):
            try:
                device, found = os.stat(path).st_dev, os.statvfs(path)
            except OSError:
                continue  # this root has none
            if device not in devices:
                devices.add(device)
                size += (found.f_blocks - found.f_bfree) * found.f_frsize
                count += found.f_files - found.f_ffree
        return self.grown(size, count)

    def grown(self, size_bytes: int, count: int) -> str:
        """Why a command must end: its file systems together hold more than one file system of `disk_mb` would, and more than at the last look.
        One that takes away, or only looks, goes on."""
        disk_mb = self._spec["disk_mb"]
        before, self._seen = self._seen, (size_bytes, count)
        if size_bytes > disk_mb << 20 and size_bytes > before[0]:
            return f"its files hold more than disk_mb={disk_mb} allows"
        if count > disk_mb * INODES_PER_MB and count > before[1]:
            return f"its folders hold more than {disk_mb * INODES_PER_MB} files and folders (disk_mb={disk_mb})"
        return ""
