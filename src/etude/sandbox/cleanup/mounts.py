"""Takes mounts off below a folder, so that removing the folder never reaches into another file system."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from etude.sandbox.cleanup.stuck import Stuck

_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_TABLE = Path("/proc/self/mountinfo")


def below(folder: Path, table: Path = _TABLE) -> list[str]:
    """Mount points at or below it, the deepest first."""
    prefix = f"{os.path.realpath(folder)}/"
    points = [_unescaped(line.split()[4]) for line in table.read_text().splitlines()]
    return sorted((point for point in points if f"{point}/".startswith(prefix)), key=len, reverse=True)


def detach_below(folder: Path) -> None:
    """Raises Stuck."""
    points = below(folder)
    if not points:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for point in points:
        if libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW):
            raise Stuck(f"mount {point} can't be taken off: {os.strerror(ctypes.get_errno())}")


def _unescaped(word: str) -> str:
    """The kernel writes blanks, tabs, line ends and backslashes as \\ooo."""
    head, *parts = word.split("\\")
    return head + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts)
