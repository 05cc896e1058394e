"""Mounts in which files belong to somebody else than on disk: how one store of layers serves sandboxes with different users.

Needs Linux 5.19 for overlays on top, and real root for a store on a disk. A process in a fresh user namespace says who is who: the kernel
reads "inside" as the owner on disk, "outside" as the one who is seen. Source: mount_setattr(2), MOUNT_ATTR_IDMAP.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import os
import struct

from etude.sandbox.inside import syscalls as sys_

_NR_OPEN_TREE, _NR_MOVE_MOUNT, _NR_MOUNT_SETATTR = 428, 429, 442  # the same numbers on every architecture
_OPEN_TREE_CLONE, _AT_FDCWD, _AT_EMPTY_PATH, _MOVE_MOUNT_F_EMPTY_PATH = 1, -100, 0x1000, 4
_RDONLY, _NOSUID, _NODEV, _IDMAP = 1, 2, 4, 0x100000


def tree(path: str, uid: tuple[int, int], gid: tuple[int, int]) -> int:
    """A descriptor of a detached mount of `path`, read-only, in which what is the first one's on disk is the second one's. Raises OSError."""
    users = _user_namespace(uid, gid)
    try:
        flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
        found = sys_.call(_NR_OPEN_TREE, f"open_tree({path})", _AT_FDCWD, os.fsencode(path), flags)
        attributes = struct.pack("QQQQ", _IDMAP | _RDONLY | _NOSUID | _NODEV, 0, 0, users)
        try:
            sys_.call(
                _NR_MOUNT_SETATTR, "mount_setattr(IDMAP)", found, b"", _AT_EMPTY_PATH, attributes, len(attributes)
            )
        except OSError:
            os.close(found)
            raise
        return found
    finally:
        os.close(users)


def attach(fd: int, path: str) -> None:
    """Mount a detached tree at `path`. Raises OSError."""
    sys_.call(_NR_MOVE_MOUNT, f"move_mount({path})", fd, b"", _AT_FDCWD, os.fsencode(path), _MOVE_MOUNT_F_EMPTY_PATH)
    os.close(fd)


def _user_namespace(uid: tuple[int, int], gid: tuple[int, int]) -> int:
    entered, its_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            sys_.unshare(sys_.CLONE_NEWUSER)
            os.write(its_end, b"1")
            _signal.pause()
        finally:
            os._exit(1)
    os.close(its_end)
    try:
        if not os.read(entered, 1):
            raise OSError("no user namespace can be made")
        for name, (on_disk, seen) in (("uid_map", uid), ("gid_map", gid)):
            with open(f"/proc/{pid}/{name}", "w") as file:
                file.write(f"{on_disk} {seen} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(entered)
        os.kill(pid, _signal.SIGKILL)
        os.waitpid(pid, 0)
