"""A layer in the making: a folder that only its maker knows, until the store renames it into place.

Files of a layer have one owner, whom a sandbox' user is; they have no setuid and no setgid bit, so that they give no rights.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from etude.sandbox.layers.errors import StoreFull
from etude.sandbox.layers.manifest import LayerEntry, LayerManifest
from etude.sandbox.layers.tree import FOLDER, remove_tree
from etude.sandbox.layers.verification import boot_id

MODE_BITS = 0o1777

Owner = tuple[int, int]


class LayerDraft:
    """`tree` is a descriptor of its root folder. Entries are noted while files are written; `times` are in nanoseconds."""

    def __init__(self, folder: Path, owner: Owner | None, place: Callable[[str], Path]) -> None:
        """`place`: where a layer of some digest belongs, on the same file system."""
        self.folder, self.owner, self.place = folder, owner, place
        self.entries: list[LayerEntry] = []
        self.times: dict[str, int] = {}
        (folder / "tree").mkdir(parents=True, mode=0o755)
        self.tree = os.open(folder / "tree", FOLDER)
        os.fchmod(self.tree, 0o755)
        if owner is not None:
            os.fchown(self.tree, *owner)

    def note(self, entry: LayerEntry, mtime_ns: int = 0) -> None:
        self.entries.append(entry)
        self.times[entry.path] = mtime_ns

    def finish_entry(self, fd: int, mode: int, mtime_ns: int) -> int:
        """The last touch of a file or folder: owner, mode, time, in this order (chown clears bits, writing changes times).
        Returns the time as this file system keeps it."""
        if self.owner is not None:
            os.fchown(fd, *self.owner)
        os.fchmod(fd, mode & MODE_BITS)
        os.utime(fd, ns=(mtime_ns, mtime_ns))
        return os.fstat(fd).st_mtime_ns

    def link(self, target: str, name: str, folder: int) -> None:
        os.symlink(target, name, dir_fd=folder)
        if self.owner is not None:
            os.chown(name, *self.owner, dir_fd=folder, follow_symlinks=False)

    def finish(self) -> LayerManifest:
        """Write down what it holds. Not flushed to the disk: what a power failure tears is found by its digest."""
        manifest = LayerManifest.of(self.entries)
        (self.folder / "manifest").write_bytes(manifest.text())
        times = [self.times[entry.path] for entry in manifest.entries]
        (self.folder / "seal").write_text(json.dumps({"boot": boot_id(), "mtime_ns": times}))
        return manifest

    def close(self) -> None:
        """Remove it, unless it was renamed away."""
        if self.tree >= 0:
            os.close(self.tree)
            self.tree = -1
        if self.folder.exists():
            remove_tree(self.folder)


@contextmanager
def translate_full_disk(where: Path) -> Iterator[None]:
    """A full disk as StoreFull, which names the store."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoreFull(
            f"no room left in {where} ({error.strerror}); `etude sandbox layers gc`, or make room"
        ) from error
