"""Snapshots, forks and differences of one live sandbox' files.

A snapshot is one moment: every process inside except the runner is frozen while the files written since creation are copied, and then
resumes. Lower layers are shared and never copied. Nothing of the parent is unmounted or moved.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from etude.sandbox.errors import SandboxError, Unsupported, UserError
from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.changes import differences
from etude.sandbox.layers.flatten import flatten
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import PinnedSnapshot
from etude.sandbox.layers.tree_import import survey_tree
from etude.sandbox.layers.view import LayerView
from etude.sandbox.snapshots import patch
from etude.sandbox.snapshots.cache import LayerCache
from etude.sandbox.snapshots.patch import INITIAL, initial_entries
from etude.sandbox.spec import FileChange, SandboxSpec, SnapshotRef

if TYPE_CHECKING:
    from etude.sandbox.wire.live import LiveSandbox

CreateChild = Callable[[SandboxSpec, PinnedSnapshot], Awaitable["LiveSandbox"]]  # takes the hold over

UPPER = "upper"  # the digest that represents what has none yet
_MOST_CHILDREN = 1000
_LEAST_BOUND_BYTES, _SPARSE = 1 << 30, 4  # files may say that they are larger than the room they take


class LayerSnapshotManager:
    """`held`: the chain below the sandbox, or None without layers. Released when everything inside is gone."""

    def __init__(
        self,
        sandbox: LiveSandbox,
        layer_cache: LayerCache,
        pinned: PinnedSnapshot | None,
        spawn: CreateChild,
        soon: Callable[[], None],
    ) -> None:
        self._sandbox, self._layer_cache, self._pinned, self._spawn, self._soon = (
            sandbox,
            layer_cache,
            pinned,
            spawn,
            soon,
        )
        most_bytes = max(_LEAST_BOUND_BYTES, _SPARSE * sandbox.spec.disk_mb << 20)
        self._bounds = Bounds(most_bytes)
        if pinned is not None:
            sandbox.call_when_gone(pinned.release)

    @property
    def chain(self) -> Snapshot:
        return self._pinned.snapshot if self._pinned is not None else Snapshot()

    async def snapshot(self, name: str, memory: bool) -> SnapshotRef:
        pinned = await self._freeze(name, memory)
        pinned.release()
        return SnapshotRef(pinned.snapshot.digest, name)

    async def fork(self, n: int, memory: bool) -> list[LiveSandbox | SandboxError]:
        if not 1 <= n <= _MOST_CHILDREN:
            raise UserError(f"fork of {n} children: from 1 to {_MOST_CHILDREN} at once")
        self._soon()
        try:
            pinned = await self._freeze("", memory, transient=True)
            spec = replace(self._sandbox.spec, files={})  # they are in the snapshot, as they are now
            try:
                return await gather_created([self._spawn(spec, pinned.pin_again()) for _ in range(n)])
            finally:
                pinned.release()
        finally:
            self._layer_cache.fork_finished()

    async def diff(self, since: SnapshotRef | None) -> list[FileChange]:
        async with self._before(since) as before, self._frozen() as upper:
            after = await self._layer_cache.work(lambda: self._seen(upper))
        return [FileChange(one.path, one.kind) for one in differences(before, after)]

    async def git_patch(self, since: SnapshotRef | None) -> bytes:
        folder = self._sandbox.spec.workdir
        async with self._before(since) as before:
            async with self._frozen() as upper:
                pair = await self._layer_cache.work(lambda: self._written_out(upper, before, folder))
            with pair:
                return await pair.compare()

    async def _freeze(self, name: str, memory: bool, transient: bool = False) -> PinnedSnapshot:
        if memory:
            raise Unsupported(
                "memory=True: back end local keeps files only; processes are part of a snapshot with sandbox.backend='gvisor'"
            )
        if self._sandbox.spec.uid_mode == "range":
            raise Unsupported("a snapshot with uid_mode='range': layers have one owner; take uid_mode='single'")
        store, below = self._layer_cache.store, self._pinned.pin_again() if self._pinned is not None else None
        pinned: list[PinnedSnapshot] = []
        try:
            async with self._frozen() as upper:
                bounds = self._bounds
                pinned += [
                    await self._layer_cache.work(
                        lambda: store.ingest(upper, self.chain, bounds=bounds, name=name, transient=transient)
                    )
                ]
            return await self._layer_cache.work(lambda: flatten(store, pinned[0], name=name, transient=transient))
        except BaseException:  # it died, or was given up, when the layer was made already
            for one in pinned:
                one.release()
            raise
        finally:
            if below is not None:
                below.release()

    @asynccontextmanager
    async def _frozen(self) -> AsyncIterator[int]:
        """A descriptor of what was written, while no process inside writes. One at a time, and nothing may resume it meanwhile."""
        async with self._sandbox.stillness:
            was_paused = self._sandbox.state == "paused"
            if not was_paused:
                await self._sandbox.freeze(True)
            try:
                upper = os.dup(self._sandbox.granted["upper"])
                try:
                    yield upper
                finally:
                    os.close(upper)
            finally:
                if not was_paused:
                    await self._sandbox.freeze(False)

    @asynccontextmanager
    async def _before(self, since: SnapshotRef | None) -> AsyncIterator[LayerView]:
        if since is None:
            below = self._pinned.pin_again() if self._pinned is not None else None
            try:
                yield await self._layer_cache.work(self._at_birth)
            finally:
                if below is not None:
                    below.release()
        else:
            pinned = await self._layer_cache.hold(since.digest)
            try:
                yield await self._layer_cache.work(lambda: LayerView.of(self._layer_cache.store, pinned.snapshot))
            finally:
                pinned.release()

    def _at_birth(self) -> LayerView:
        view = LayerView.of(self._layer_cache.store, self.chain)
        view.apply(initial_entries(self._sandbox.spec, view), INITIAL)
        return view

    def _seen(self, upper: int) -> LayerView:
        view = LayerView.of(self._layer_cache.store, self.chain)
        view.apply(survey_tree(upper, self._bounds, view.entries.__contains__).entries, UPPER)
        return view

    def _written_out(self, upper: int, before: LayerView, workdir: str) -> patch.PatchFolders:
        sources = patch.FileSources(self._layer_cache.store, upper, self._sandbox.spec)
        return patch.PatchFolders.write_folders(sources, before, self._seen(upper), workdir)


async def gather_created(births: list[Awaitable[LiveSandbox]]) -> list[LiveSandbox | SandboxError]:
    """Each one or its error. Who no longer waits for them gets none: those that were born are killed."""
    tasks = [asyncio.ensure_future(backend_handle) for backend_handle in births]
    try:
        done = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        await asyncio.gather(*(_cancel_creation(task) for task in tasks))
        raise
    faults = [one for one in done if isinstance(one, BaseException) and not isinstance(one, SandboxError)]
    if faults:
        await asyncio.gather(*(_cancel_creation(task) for task in tasks))
        raise faults[0]
    return [one for one in done if not isinstance(one, BaseException) or isinstance(one, SandboxError)]


async def _cancel_creation(task: asyncio.Future[LiveSandbox]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().kill()
