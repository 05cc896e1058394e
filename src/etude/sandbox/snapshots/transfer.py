"""A store's layers on their way to other hosts and from them, in pieces: what a fleet asks of a host (`fleet.host.HostLayers`).

Promises: memory is a few pieces, however large a layer; the event loop never waits for a disk; what is being shipped is not collected
meanwhile; a layer that is not what its digest says is refused whole. What a peer leaves half done goes after a while without a word of it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Generic, Protocol, TypeVar

from etude.sandbox.errors import InfraError, LayerCorrupt, SandboxNotFound
from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.errors import UnknownSnapshot
from etude.sandbox.layers.export import pack
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.layers.transfer import pin_present, receive_layer, record_snapshot
from etude.sandbox.snapshots.cache import LayerCache
from etude.sandbox.spec import SnapshotRef

T = TypeVar("T")

_PIECE_BYTES = 4 << 20
_HELD_S = 900.0  # for the rest of a chain to come
_SPOOL_S = 120.0  # between two pieces
_MOST_BYTES = 2 * Bounds().max_bytes  # an archive is larger than its files, never by so much


class _CloseablePin:
    """A pinned snapshot with a `close` method."""

    def __init__(self, hold: PinnedSnapshot) -> None:
        self.hold, self.close = hold, hold.release


class Closeable(Protocol):
    def close(self) -> None: ...


Item = TypeVar("Item", bound=Closeable)


@dataclass
class _Slot(Generic[Item]):
    thing: Item | None = None
    users: int = 0
    done: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None


class IdleCache(Generic[Item]):
    """Values by key, each used by one caller at a time. A value is closed `patience_s` after its last use, when it is done, or with the cache."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._slots: dict[str, _Slot[Item]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._slots

    @asynccontextmanager
    async def use(self, key: str, make: Callable[[], Awaitable[Item]]) -> AsyncIterator[Item]:
        """The thing of this key, made where there is none."""
        slot = self._slots.setdefault(key, _Slot())
        slot.users += 1
        if slot.timer is not None:
            slot.timer.cancel()
        try:
            async with slot.turn:
                if slot.thing is None:
                    slot.thing = await make()
                yield slot.thing
        finally:
            slot.users -= 1
            if not slot.users and self._slots.get(key) is slot:
                if slot.done or slot.thing is None:
                    self._drop(key)
                else:
                    slot.timer = asyncio.get_running_loop().call_later(self._patience_s, self._drop, key)

    def done(self, key: str) -> None:
        """It goes when those that use it now have finished."""
        self._slots[key].done = True

    async def close(self) -> None:
        """Each when it is no longer in use."""
        for key, slot in list(self._slots.items()):
            async with slot.turn:
                if self._slots.get(key) is slot:
                    self._drop(key)

    def _drop(self, key: str) -> None:
        slot = self._slots.pop(key)
        if slot.timer is not None:
            slot.timer.cancel()
        thing, slot.thing = slot.thing, None
        if thing is not None:
            thing.close()


class LayerTransfer:
    """Answers are as `fleet.host.HostLayers` says."""

    def __init__(self, layer_cache: LayerCache) -> None:
        self._layer_cache, self._store, self.piece_bytes = layer_cache, layer_cache.store, _PIECE_BYTES
        self._holds: IdleCache[_CloseablePin] = IdleCache(_HELD_S)
        self._leaving: IdleCache[IO[bytes]] = IdleCache(_SPOOL_S)
        self._arriving: IdleCache[IO[bytes]] = IdleCache(_SPOOL_S)
        self._closed = False
        self._chains: dict[str, tuple[str, ...]] = {}  # of records that were read once: they never change

    async def chain(self, called: str) -> tuple[tuple[str, ...], bytes]:
        hold = await self._found(lambda: self._store.hold(called))
        await self._keep(hold)
        return hold.snapshot.layers, hold.snapshot.text()

    async def missing(self, digests: tuple[str, ...]) -> list[str]:
        """What is here is held from now on, for the snapshot that is to come."""
        hold = await self._work(lambda: pin_present(self._store, digests))
        await self._keep(hold)
        here = set(hold.snapshot.layers)
        return [digest for digest in digests if digest not in here]

    async def export_layer(self, digest: str, start: int) -> tuple[bytes, bool]:
        async with self._leaving.use(digest, lambda: self._packed(digest)) as spool:
            number, size = spool.fileno(), self.piece_bytes
            piece, total = await self._work(lambda: (os.pread(number, size, start), os.fstat(number).st_size))
            more = start + len(piece) < total
            if not more:
                self._leaving.done(digest)
            return piece, more

    async def import_layer(self, digest: str, parcel: str, start: int, piece: bytes, more: bool) -> None:
        key = f"{parcel}/{digest}"
        if start and key not in self._arriving:
            raise InfraError(
                f"layer {digest[:12]}: its first {start} bytes waited too long for the rest; send it again"
            )
        if start + len(piece) > _MOST_BYTES:
            raise LayerCorrupt(f"layer {digest[:12]}: what arrives as it is over {_MOST_BYTES} bytes")
        async with self._arriving.use(key, self._spool) as spool:
            await self._work(lambda: _write_piece(spool, piece, start))
            if not more:
                self._arriving.done(key)
                await self._keep(await self._work(lambda: _receive_file(self._store, digest, spool)))

    async def enter(self, record: bytes, name: str) -> SnapshotRef:
        hold = await self._found(lambda: record_snapshot(self._store, record, name))
        await self._keep(hold)
        return SnapshotRef(hold.snapshot.digest, name)

    async def held(self) -> frozenset[str]:
        self._chains = await self._work(lambda: _chains(self._store, self._chains))
        return frozenset().union(*self._chains.values())

    async def close(self) -> None:
        self._closed = True
        for part in (self._leaving, self._arriving, self._holds):
            await part.close()

    async def _work(self, job: Callable[[], T]) -> T:
        if self._closed:
            raise SandboxNotFound("the pool of these layers is closed")
        return await self._layer_cache.work(job)

    async def _found(self, job: Callable[[], PinnedSnapshot]) -> PinnedSnapshot:
        """What isn't here may be on another host: no mistake of the caller's."""

        def search() -> PinnedSnapshot:
            try:
                return job()
            except UnknownSnapshot as error:
                raise SandboxNotFound(str(error)) from None

        return await self._work(search)

    async def _keep(self, hold: PinnedSnapshot) -> None:
        """For a while; a second hold of the same snapshot prolongs the first."""

        async def this() -> _CloseablePin:
            return _CloseablePin(hold)

        async with self._holds.use(hold.snapshot.digest, this) as kept:
            if kept.hold is not hold:
                hold.release()

    async def _packed(self, digest: str) -> IO[bytes]:
        hold = await self._work(lambda: pin_present(self._store, [digest]))
        try:
            if not hold.snapshot.layers:
                raise SandboxNotFound(f"layer {digest[:12]}: not on this host")
            return await self._work(lambda: _packed_file(self._store, digest))
        finally:
            hold.release()

    async def _spool(self) -> IO[bytes]:
        """A file without a name, on the store's disk."""
        return await self._work(lambda: tempfile.TemporaryFile(dir=self._store.root))


def _packed_file(store: LayerStore, digest: str) -> IO[bytes]:
    file = tempfile.TemporaryFile(dir=store.root)
    try:
        pack(store, digest, file)
        file.flush()
    except BaseException:
        file.close()
        raise
    return file


def _write_piece(file: IO[bytes], piece: bytes, start: int) -> None:
    file.seek(start)
    file.write(piece)
    file.flush()


def _receive_file(store: LayerStore, digest: str, file: IO[bytes]) -> PinnedSnapshot:
    file.seek(0)
    return receive_layer(store, digest, file)


def _chains(store: LayerStore, known: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The layers of each snapshot that is here."""
    found: dict[str, tuple[str, ...]] = {}
    for name in os.listdir(store.snapshots):
        with suppress(OSError, ValueError, KeyError, TypeError):  # collected meanwhile, or broken: nothing to offer
            found[name] = known.get(name) or Snapshot.parse((store.snapshots / name).read_bytes()).layers
    return found
