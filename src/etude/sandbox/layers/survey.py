"""What an upper folder holds, read and hashed without a copy: for differences."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from etude.sandbox.layers import overlay
from etude.sandbox.layers.bounds import Bounds, Tally
from etude.sandbox.layers.manifest import Entry, Manifest
from etude.sandbox.layers.tree import read_entry, walk


def survey(upper: int, bounds: Bounds, below: Callable[[str], bool]) -> Manifest:
    """`upper`: its descriptor; `below`: whether the chain that it stands on shows something at a path. Raises Hostile, OSError."""
    tally, found = Tally(bounds), []
    for path, folder, name in walk(upper):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        kind = stat.S_IFMT(status.st_mode)
        tally.add(path, status.st_size if kind == stat.S_IFREG else 0)
        if kind in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK) or overlay.is_whiteout(status):
            found.append(read_entry(path, folder, name))
        elif below(path):
            found.append(Entry(path, "gone"))
    return Manifest.of(found)
