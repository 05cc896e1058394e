"""What a fleet asks of a host, and the host that is a pool of this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from etude.sandbox.errors import SandboxError, Unsupported
from etude.sandbox.fleet.demand import Heartbeat, HostFacts
from etude.sandbox.fleet.single_flight import SingleFlight
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec, SnapshotRef


class HostLayers(Protocol):
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


class Host(HostLayers, Protocol):
    """One machine. `owner` names the fleet that asks: several may share a host, and none touches another's sandboxes."""

    name: str

    async def facts(self) -> HostFacts: ...
    async def beat(self, owner: str) -> Heartbeat: ...
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


def read_pressure() -> tuple[float, float]:
    """Of CPU and of memory."""
    return cpu_pressure(), memory_pressure()


def cpu_pressure() -> float:
    found = _stalled_share("cpu")
    if found is not None:
        return found
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return max(0.0, 1 - cores / load) if load > 0 else 0.0  # of `load` that want to run, `cores` do


def memory_pressure() -> float:
    found = _stalled_share("memory")
    if found is not None:
        return found
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])
    except (OSError, KeyError):
        return 0.0  # a host that can't say is placed by what it has promised alone
    return max(0.0, 1 - free / _SCARCE)


def _stalled_share(what: str, folder: Path = Path("/proc/pressure")) -> float | None:
    """The share of the last ten seconds in which some work waited; None where the kernel doesn't count (it may refuse at the read)."""
    try:
        some = (folder / what).read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    return float(some.split("avg10=")[1].split()[0]) / 100


_SCARCE = 0.2  # without pressure figures: memory counts as pressed once less than this share is free


class LocalHost:
    """A pool of this process as a host."""

    def __init__(
        self,
        name: str,
        pool: SandboxPool,
        facts: HostFacts,
        read_load: Callable[[], tuple[float, float]] = read_pressure,
    ) -> None:
        """`read_load`: pressure on CPU and memory, each 0 to 1. Layers are shipped where the pool has `host_layers`."""
        self.name, self._pool, self._facts, self._read_load = name, pool, facts, read_load
        self._layer_store: HostLayers | None = getattr(pool, "host_layers", None)
        self._created: SingleFlight[Sandbox] = SingleFlight(stale=lambda box: box.state == "dead")
        self._live: dict[tuple[str, str], Sandbox | None] = {}  # (owner, key) → None: being made

    async def facts(self) -> HostFacts:
        return self._facts

    async def beat(self, owner: str) -> Heartbeat:
        for who in [who for who, box in self._live.items() if box is not None and box.state == "dead"]:
            del self._live[who]
            self._created.forget("/".join(who))
        live = {key: "" if box is None else box.id for (whose, key), box in self._live.items() if whose == owner}
        layers = await self._layer_store.held() if self._layer_store else frozenset[str]()
        return Heartbeat(live, layers, *self._read_load(), self._pool.stats().running)

    async def create(self, spec: SandboxSpec, owner: str, key: str) -> Sandbox:
        return await self._created.once(f"{owner}/{key}", lambda: self._spawn(spec, None, (owner, key)))

    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, owner: str, key: str) -> Sandbox:
        return await self._created.once(f"{owner}/{key}", lambda: self._spawn(spec, snapshot, (owner, key)))

    async def end(self, owner: str, key: str) -> None:
        if (owner, key) in self._live:
            box = self._live.pop((owner, key))
            if box is not None:
                await box.kill()
        self._created.forget(f"{owner}/{key}")

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

    def _layers(self) -> HostLayers:
        if self._layer_store is None:
            raise Unsupported(
                f"host {self.name} has no store of layers; its back end is {self._facts.capabilities.backend}"
            )
        return self._layer_store

    async def _spawn(self, spec: SandboxSpec, snapshot: SnapshotRef | None, who: tuple[str, str]) -> Sandbox:
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
