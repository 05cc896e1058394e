"""What a fleet asks of a host, and the host that is a pool of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from etude.sandbox.errors import SandboxError, Unsupported
from etude.sandbox.fleet import pressure
from etude.sandbox.fleet.demand import Beat, HostFacts
from etude.sandbox.fleet.keys import Keys
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec, SnapshotRef


class Shelf(Protocol):
    """The layers of one host. `called`: a snapshot's digest or an image's name. Unknown ones raise SandboxNotFound."""

    async def chain(self, called: str) -> tuple[tuple[str, ...], bytes]:
        """Its layers, topmost first, and the store's own record of it: what `enter` needs, nothing to look into."""
        ...

    async def missing(self, digests: tuple[str, ...]) -> list[str]: ...
    async def export_layer(self, digest: str, start: int) -> tuple[bytes, bool]:
        """A piece of its archive, a few MiB from `start` on, and whether more follows. The same bytes each time."""
        ...

    async def import_layer(self, digest: str, parcel: str, start: int, piece: bytes, more: bool) -> None:
        """In order; `parcel` tells one sender's pieces from another's. Raises LayerCorrupt, at the last one, where all of it is another layer."""
        ...

    async def enter(self, record: bytes, name: str) -> SnapshotRef:
        """The snapshot, under the same digest, now that its layers are all here; with a name, an image."""
        ...

    async def held(self) -> frozenset[str]: ...


class Host(Shelf, Protocol):
    """One machine. `owner` names the fleet that asks: several may share a host, and none touches another's sandboxes."""

    name: str

    async def facts(self) -> HostFacts: ...
    async def beat(self, owner: str) -> Beat: ...
    async def create(self, spec: SandboxSpec, owner: str, key: str) -> Sandbox:
        """The same key gives the same sandbox, while it lives."""
        ...

    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, owner: str, key: str) -> Sandbox: ...
    async def end(self, owner: str, key: str) -> None:
        """Kill what was made for this key, also what is being made. Idempotent."""
        ...

    async def leave(self, owner: str) -> None:
        """End all of this owner's."""
        ...


class LocalHost:
    """A pool of this process as a host."""

    def __init__(
        self,
        name: str,
        pool: SandboxPool,
        facts: HostFacts,
        gauge: Callable[[], tuple[float, float]] = pressure.read,
    ) -> None:
        """`gauge`: pressure on CPU and memory, each 0 to 1. Layers are shipped where the pool has a `shelf` of them."""
        self.name, self._pool, self._facts, self._gauge = name, pool, facts, gauge
        self._shelf: Shelf | None = getattr(pool, "shelf", None)
        self._born: Keys[Sandbox] = Keys(stale=lambda box: box.state == "dead")
        self._live: dict[tuple[str, str], Sandbox | None] = {}  # (owner, key) → None: being made

    async def facts(self) -> HostFacts:
        return self._facts

    async def beat(self, owner: str) -> Beat:
        for who in [who for who, box in self._live.items() if box is not None and box.state == "dead"]:
            del self._live[who]
            self._born.forget("/".join(who))
        live = {key: "" if box is None else box.id for (whose, key), box in self._live.items() if whose == owner}
        layers = await self._shelf.held() if self._shelf else frozenset[str]()
        return Beat(live, layers, *self._gauge(), self._pool.stats().running)

    async def create(self, spec: SandboxSpec, owner: str, key: str) -> Sandbox:
        return await self._born.once(f"{owner}/{key}", lambda: self._bear(spec, None, (owner, key)))

    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, owner: str, key: str) -> Sandbox:
        return await self._born.once(f"{owner}/{key}", lambda: self._bear(spec, snapshot, (owner, key)))

    async def end(self, owner: str, key: str) -> None:
        if (owner, key) in self._live:
            box = self._live.pop((owner, key))
            if box is not None:
                await box.kill()
        self._born.forget(f"{owner}/{key}")

    async def leave(self, owner: str) -> None:
        await asyncio.gather(*(self.end(*who) for who in list(self._live) if who[0] == owner))

    async def chain(self, called: str) -> tuple[tuple[str, ...], bytes]:
        return await self._layers().chain(called)

    async def missing(self, digests: tuple[str, ...]) -> list[str]:
        return await self._layers().missing(digests)

    async def export_layer(self, digest: str, start: int) -> tuple[bytes, bool]:
        return await self._layers().export_layer(digest, start)

    async def import_layer(self, digest: str, parcel: str, start: int, piece: bytes, more: bool) -> None:
        await self._layers().import_layer(digest, parcel, start, piece, more)

    async def enter(self, record: bytes, name: str) -> SnapshotRef:
        return await self._layers().enter(record, name)

    async def held(self) -> frozenset[str]:
        return await self._layers().held()

    def _layers(self) -> Shelf:
        if self._shelf is None:
            raise Unsupported(
                f"host {self.name} has no store of layers; its back end is {self._facts.capabilities.backend}"
            )
        return self._shelf

    async def _bear(self, spec: SandboxSpec, snapshot: SnapshotRef | None, who: tuple[str, str]) -> Sandbox:
        self._live[who] = None
        try:
            if snapshot is None:
                box = await self._pool.create(spec)
            else:
                (found,) = await self._pool.restore(snapshot, spec)
                if isinstance(found, SandboxError):
                    raise found
                box = found
        except BaseException:
            self._live.pop(who, None)
            raise
        if who not in self._live:  # ended while it was being made
            await box.kill()
        else:
            self._live[who] = box
        return box
