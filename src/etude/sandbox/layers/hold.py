"""A snapshot in use: its layers stay until it is let go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etude.sandbox.layers.snapshot import Snapshot

if TYPE_CHECKING:
    from etude.sandbox.layers.store import LayerStore


class Hold:
    """A context manager; `release` is idempotent."""

    def __init__(self, store: LayerStore, snapshot: Snapshot) -> None:
        self._store, self.snapshot = store, snapshot
        self._held = True

    @property
    def folders(self) -> tuple[Path, ...]:
        """The layers' trees, topmost first, as an overlay takes them: each once, since the kernel refuses a folder named twice (ELOOP).

        What a layer says and hides, its topmost place says and hides of everything below it, so its lower places change nothing.
        """
        return tuple(self._store.layer(digest) / "tree" for digest in dict.fromkeys(self.snapshot.layers))

    def again(self) -> Hold:
        """One more hold of the same snapshot."""
        self._store.lease.hold(self.snapshot.digest)
        return Hold(self._store, self.snapshot)

    def release(self) -> None:
        if self._held:
            self._held = False
            self._store.lease.release(self.snapshot.digest)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
