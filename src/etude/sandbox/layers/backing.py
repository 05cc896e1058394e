"""The backing of a store: the disk, which keeps everything, or memory, for layers that go with their last pin.

Files are made in memory five to twenty times as quickly as on a busy disk, and most forks live for seconds. What is to be kept is copied
to the disk when it gets a name or is asked for as a snapshot; what memory held is lost with the machine's power, and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path

from etude.sandbox.layers.lease import Lease

_SHORT = 32  # digits in a folder's name: all the layers of a chain must fit into one page of mount options
MEMORY = Path("/dev/shm")
STORE = "store"  # the file in memory's part that says whose it is


class StoreBacking:
    def __init__(self, root: Path) -> None:
        self.root, self.layers = root, root / "layers"
        self.live, self.trash = root / "live", root / "trash"
        for folder in (self.layers, self.live, self.trash):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.layers.chmod(0o755)  # bound into the sandboxes' mount namespaces; the folders above stay closed
        self._lease: Lease | None = None
        self._guard = threading.Lock()

    def layer(self, digest: str) -> Path:
        return self.layers / digest[:_SHORT]

    @property
    def lease(self) -> Lease:
        with self._guard:
            if self._lease is None:
                self._lease = Lease(self.live)
            return self._lease

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        with self._guard:
            if self._lease is not None:
                self._lease.close()
                self._lease = None

    def close_and_remove(self) -> None:
        """Close it; the last one to do so takes the folders away. The store must be locked against everybody."""
        self.close()
        with suppress(OSError):  # somebody else is there, or a collection has yet to come
            for folder in (self.live, self.trash, self.layers):
                folder.rmdir()
            (self.root / STORE).unlink(missing_ok=True)
            self.root.rmdir()


def prefix() -> str:
    """Of the names of this user's folders in memory."""
    return f"etude-layers-{os.geteuid()}-"


def memory_backing(root: Path) -> StoreBacking | None:
    """Memory's part of the store at `root`, the same for all its users; None where there is no file system in memory for us.
    The store must be locked."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    place = MEMORY / f"{prefix()}{name}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        if found.st_uid != os.geteuid() or not place.is_dir() or place.is_symlink() or not os.path.ismount(MEMORY):
            return None
        place.chmod(0o711)  # sandboxes' user passes through it, to `layers` alone
        (place / STORE).write_bytes(os.fsencode(root.resolve()))
        backing = StoreBacking(place)
        backing.lease.folder.stat()  # taken at once: it says that somebody is there
        return backing
    except OSError:
        return None
