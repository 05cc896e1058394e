"""How an overlay file system writes down what a layer hides, with the option `userxattr`: the only way open to ordinary users.

A whiteout is a character device 0:0, which everybody may make. An opaque folder has `user.overlay.opaque=y`. Inside a sandbox no process
can forge either: the kernel escapes names under `user.overlay.` there, and refuses mknod.
"""

from __future__ import annotations

import os
import stat

OPAQUE = "user.overlay.opaque"
RESERVED = "user.overlay."
# The kernel's own notes, of no meaning in another layer.
_PRIVATE = {f"user.overlay.{name}" for name in ("opaque", "origin", "impure", "nlink", "upper", "uuid", "protattr")}
# These make a file's content or place depend on another layer. The kernel writes neither with userxattr.
_FOREIGN = {f"user.overlay.{name}" for name in ("redirect", "metacopy", "whiteout")}
_WHITEOUT = stat.S_IFCHR
# What every file system keeps for a file (ext4: one block for all of them, and its "no space left" is no full disk).
_MOST_OWN_BYTES, _MOST_NAME_BYTES = 3000, 255


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def make_whiteout(name: str, folder: int) -> None:
    os.mknod(name, _WHITEOUT, 0, dir_fd=folder)


def attributes(fd: int) -> tuple[bool, tuple[tuple[str, str], ...]]:
    """Whether it is opaque, and its owner's own attributes. Raises ValueError for what no layer can say."""
    names = os.listxattr(fd)
    if not names:
        return False, ()
    if foreign := _FOREIGN.intersection(names):
        raise ValueError(f"it has {', '.join(sorted(foreign))}, which only a broken overlay writes")
    opaque = OPAQUE in names and os.getxattr(fd, OPAQUE) == b"y"
    own = sorted(name for name in names if name.startswith("user.") and name not in _PRIVATE)
    return opaque, tuple((name, os.getxattr(fd, name).hex()) for name in own)


def require_small(own: tuple[tuple[str, str], ...]) -> None:
    """Raises ValueError for attributes that a layer can't keep."""
    size = sum(len(os.fsencode(name)) + len(value) // 2 for name, value in own)
    if size > _MOST_OWN_BYTES or any(not 5 < len(os.fsencode(name)) <= _MOST_NAME_BYTES for name, _ in own):
        raise ValueError(
            f"it has {size} bytes of attributes of its own (user.*); a layer keeps {_MOST_OWN_BYTES}, with names up to {_MOST_NAME_BYTES}"
        )


def dress(fd: int, opaque: bool, own: tuple[tuple[str, str], ...]) -> None:
    if opaque:
        os.setxattr(fd, OPAQUE, b"y")
    for name, value in own:
        os.setxattr(fd, name, bytes.fromhex(value))
