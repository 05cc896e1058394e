"""What one live sandbox' files stand on, and what can be made of them: snapshots, forks, differences.

A snapshot is one moment: every process inside but the runner stands still while what was written since birth is copied (never more than
that: what is below is shared), and goes on after it. Nothing of the parent is unmounted or moved.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from etude.sandbox.errors import SandboxError, Unsupported, UserError
from etude.sandbox.layered import patch
from etude.sandbox.layered.born import BORN, as_born
from etude.sandbox.layered.shelf import Shelf
from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.changes import differences
from etude.sandbox.layers.flatten import flat
from etude.sandbox.layers.hold import Hold
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.survey import survey
from etude.sandbox.layers.view import View
from etude.sandbox.spec import Change, SandboxSpec, SnapshotRef

if TYPE_CHECKING:
    from etude.sandbox.wire.live import LiveSandbox

Bear = Callable[[SandboxSpec, Hold], Awaitable["LiveSandbox"]]  # takes the hold over

UPPER = "upper"  # the digest that stands for what has none yet
_MOST_CHILDREN = 1000
_LEAST_BOUND_BYTES, _SPARSE = 1 << 30, 4  # files may say that they are larger than the room they take


class Footing:
    """`held`: the chain below the sandbox, or None without layers. Released when everything inside is gone."""

    def __init__(
        self, sandbox: LiveSandbox, shelf: Shelf, held: Hold | None, bear: Bear, soon: Callable[[], None]
    ) -> None:
        self._sandbox, self._shelf, self._held, self._bear, self._soon = sandbox, shelf, held, bear, soon
        most_bytes = max(_LEAST_BOUND_BYTES, _SPARSE * sandbox.spec.disk_mb << 20)
        self._bounds = Bounds(most_bytes)
        if held is not None:
            sandbox.afterwards(held.release)

    @property
    def chain(self) -> Snapshot:
        return self._held.snapshot if self._held is not None else Snapshot()

    async def snapshot(self, name: str, memory: bool) -> SnapshotRef:
        held = await self._freeze(name, memory)
        held.release()
        return SnapshotRef(held.snapshot.digest, name)

    async def fork(self, n: int, memory: bool) -> list[LiveSandbox | SandboxError]:
        if not 1 <= n <= _MOST_CHILDREN:
            raise UserError(f"fork of {n} children: from 1 to {_MOST_CHILDREN} at once")
        self._soon()
        try:
            held = await self._freeze("", memory, passing=True)
            spec = replace(self._sandbox.spec, files={})  # they are in the snapshot, as they are now
            try:
                return await all_born([self._bear(spec, held.again()) for _ in range(n)])
            finally:
                held.release()
        finally:
            self._shelf.passed()

    async def diff(self, since: SnapshotRef | None) -> list[Change]:
        async with self._before(since) as before, self._still() as upper:
            after = await self._shelf.work(lambda: self._seen(upper))
        return [Change(one.path, one.kind) for one in differences(before, after)]

    async def git_patch(self, since: SnapshotRef | None) -> bytes:
        folder = self._sandbox.spec.workdir
        async with self._before(since) as before:
            async with self._still() as upper:
                pair = await self._shelf.work(lambda: self._written_out(upper, before, folder))
            with pair:
                return await pair.compared()

    async def _freeze(self, name: str, memory: bool, passing: bool = False) -> Hold:
        if memory:
            raise Unsupported(
                "memory=True: back end local keeps files only; processes are part of a snapshot with sandbox.backend='gvisor'"
            )
        if self._sandbox.spec.uid_mode == "range":
            raise Unsupported("a snapshot with uid_mode='range': layers have one owner; take uid_mode='single'")
        store, below = self._shelf.store, self._held.again() if self._held is not None else None
        held: list[Hold] = []
        try:
            async with self._still() as upper:
                bounds = self._bounds
                held += [
                    await self._shelf.work(
                        lambda: store.ingest(upper, self.chain, bounds=bounds, name=name, passing=passing)
                    )
                ]
            return await self._shelf.work(lambda: flat(store, held[0], name=name, passing=passing))
        except BaseException:  # it died, or was given up, when the layer was made already
            for one in held:
                one.release()
            raise
        finally:
            if below is not None:
                below.release()

    @asynccontextmanager
    async def _still(self) -> AsyncIterator[int]:
        """A descriptor of what was written, while nobody inside writes. One at a time, and nobody may resume it meanwhile."""
        async with self._sandbox.stillness:
            stands = self._sandbox.state == "paused"
            if not stands:
                await self._sandbox.freeze(True)
            try:
                upper = os.dup(self._sandbox.granted["upper"])
                try:
                    yield upper
                finally:
                    os.close(upper)
            finally:
                if not stands:
                    await self._sandbox.freeze(False)

    @asynccontextmanager
    async def _before(self, since: SnapshotRef | None) -> AsyncIterator[View]:
        if since is None:
            below = self._held.again() if self._held is not None else None
            try:
                yield await self._shelf.work(self._at_birth)
            finally:
                if below is not None:
                    below.release()
        else:
            held = await self._shelf.hold(since.digest)
            try:
                yield await self._shelf.work(lambda: View.of(self._shelf.store, held.snapshot))
            finally:
                held.release()

    def _at_birth(self) -> View:
        view = View.of(self._shelf.store, self.chain)
        view.lay(as_born(self._sandbox.spec, view), BORN)
        return view

    def _seen(self, upper: int) -> View:
        view = View.of(self._shelf.store, self.chain)
        view.lay(survey(upper, self._bounds, view.entries.__contains__).entries, UPPER)
        return view

    def _written_out(self, upper: int, before: View, workdir: str) -> patch.Pair:
        sources = patch.Sources(self._shelf.store, upper, self._sandbox.spec)
        return patch.Pair.written(sources, before, self._seen(upper), workdir)


async def all_born(births: list[Awaitable[LiveSandbox]]) -> list[LiveSandbox | SandboxError]:
    """Each one or its error. Who no longer waits for them gets none: those that were born are killed."""
    tasks = [asyncio.ensure_future(birth) for birth in births]
    try:
        done = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        await asyncio.gather(*(_ended(task) for task in tasks))
        raise
    faults = [one for one in done if isinstance(one, BaseException) and not isinstance(one, SandboxError)]
    if faults:
        await asyncio.gather(*(_ended(task) for task in tasks))
        raise faults[0]
    return [one for one in done if not isinstance(one, BaseException) or isinstance(one, SandboxError)]


async def _ended(task: asyncio.Future[LiveSandbox]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().kill()
