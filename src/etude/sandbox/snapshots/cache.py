"""A pool's access to the layer store: pinned snapshots that it keeps, work off the event loop, and collection after forks."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from etude.sandbox.inside.zygote import UNPRIVILEGED_UIDS
from etude.sandbox.layers.collect import collect
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.snapshots.errors import translate_layer_errors

T = TypeVar("T")

_KEPT = 8  # snapshots of which a hold is kept after use: the next birth over one needs no look at its layers
_FORKS_BEFORE_TIDY = 64  # forks after which the store is tidied


def default_folder() -> Path:
    """Where this user's data lies; below the temporary folder for a user without a home, such as a service's."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    nearest = Path(data)
    while not nearest.exists():
        nearest = nearest.parent
    if os.path.isabs(data) and os.access(nearest, os.W_OK):
        return Path(data, "etude", "layers")
    return Path(tempfile.gettempdir(), f"etude-layers-{os.geteuid()}")


def open_store(folder: str = "") -> LayerStore:
    """`folder` as the setting `sandbox.layers` has it. What root makes belongs to the user that its sandboxes are. Raises OSError."""
    uid = next(filter(_is_mapped, UNPRIVILEGED_UIDS), None) if os.geteuid() == 0 else None
    owner = (uid, uid) if uid is not None else None
    root = Path(folder) if folder else default_folder()
    try:
        return LayerStore(root, owner, in_memory=True)
    except OSError as error:
        raise OSError(error.errno, f"no layers can be kept in {root}: {error.strerror}") from error


def _is_mapped(uid: int) -> bool:
    """Whether there is such a user in our user namespace."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return any(0 <= uid - int(first) < int(count) for first, _, count in map(str.split, lines))


class LayerCache:
    """Closing it ends all holds."""

    def __init__(self, store: LayerStore) -> None:
        self.store = store
        self._kept: OrderedDict[str, PinnedSnapshot] = OrderedDict()
        self._forks = 0
        self._tidying: asyncio.Task[None] | None = None

    async def hold(self, ref: str) -> PinnedSnapshot:
        """A hold of the caller's own. Raises UserError for what isn't there, LayerCorrupt."""
        pinned = await self.work(lambda: self.store.hold(ref))
        self._keep(pinned)
        return pinned

    async def work(self, job: Callable[[], T]) -> T:
        """Run it in a thread, to its end even if the caller no longer waits; its errors as this room's."""
        task = asyncio.ensure_future(asyncio.to_thread(job))
        try:
            with translate_layer_errors():
                return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None and isinstance(done := task.result(), PinnedSnapshot):
                done.release()
            raise

    def fork_finished(self) -> None:
        """A fork is over. Now and then what forks left is collected."""
        self._forks += 1
        if self._forks % _FORKS_BEFORE_TIDY == 0 and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.ensure_future(self._tidy())

    async def close(self) -> None:
        """Returns when what its forks left is gone."""
        for pinned in self._kept.values():
            pinned.release()
        self._kept.clear()
        if self._tidying is not None:
            await self._tidying
        if self._forks:
            await self._tidy()
        self.store.close()

    def _keep(self, pinned: PinnedSnapshot) -> None:
        digest = pinned.snapshot.digest
        if digest not in self._kept:
            self._kept[digest] = pinned.pin_again()
        self._kept.move_to_end(digest)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)[1].release()

    async def _tidy(self) -> None:
        await self.work(lambda: collect(self.store))
