"""The pool of this machine's own sandboxes, from any `SandboxBackend`: namespaces, bubblewrap, podman, or a plain process.

Promises: a sandbox is handed out whole or not at all; everything that goes wrong is a typed error; closing the pool, or the death of
this process, ends every sandbox it made.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from contextlib import AsyncExitStack

from etude.sandbox import interpreter, spec_validation
from etude.sandbox.cleanup.journal import Journal
from etude.sandbox.cleanup.ledger import CleanupLedger
from etude.sandbox.cleanup.undo import RemoveFolder, RemoveGroup, Undo
from etude.sandbox.creation import SandboxBackend, SandboxCreator
from etude.sandbox.errors import InfraError, SandboxError, SandboxNotFound, Unsupported
from etude.sandbox.launch.memory import MemorySandboxFactory
from etude.sandbox.lifetimes.admission import open_queue
from etude.sandbox.lifetimes.lifecycle import SandboxLifecycle
from etude.sandbox.lifetimes.periodic_reaper import PeriodicReaper, describe
from etude.sandbox.lifetimes.ttl_scheduler import LoopTtlScheduler
from etude.sandbox.limits.groups import ControlGroups
from etude.sandbox.network.egress import PoolEgress
from etude.sandbox.protocol import Sandbox
from etude.sandbox.registry import SandboxRegistry
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.snapshots.cache import LayerCache
from etude.sandbox.snapshots.factory import LayeredSandboxFactory
from etude.sandbox.snapshots.transfer import LayerTransfer
from etude.sandbox.spec import Capabilities, PoolStats, SandboxSpec, SnapshotRef
from etude.sandbox.wire.live import LiveSandbox


class LocalPool:
    """Makes sandboxes; open it with `LocalPool.open`, which proves that it works by making one."""

    def __init__(
        self,
        settings: SandboxSettings,
        backend: SandboxBackend,
        groups: ControlGroups,
        ledger: CleanupLedger,
        journal: Journal,
        layer_cache: LayerCache | None = None,
    ) -> None:
        self._backend, self._groups = backend, groups
        self._most_running = settings.max_running
        self._running = asyncio.Semaphore(settings.max_running)
        self._journal = journal
        self._belongings: dict[str, list[Undo]] = {
            "cradle": [*backend.leftovers()],
            "groups": [RemoveGroup(str(folder)) for folder in groups.pools],
        }
        for name, ways in self._belongings.items():
            journal.enter(name, f"{name} of a pool", ways)
        self._reaper = PeriodicReaper(ledger)
        self._ttl_scheduler = LoopTtlScheduler()
        self._registry = SandboxRegistry()
        self._egress = PoolEgress(settings)
        queue = open_queue(settings.max_live, settings.creates_per_s, settings.max_waiting, settings.patience_s)
        self._creator = SandboxCreator(backend, groups, self._running, self._egress)
        self._lifecycle = SandboxLifecycle(self._creator, self._registry, queue, self._ttl_scheduler, self._journal)
        self._factory: LayeredSandboxFactory | MemorySandboxFactory
        if backend.memory_backend is not None:
            self._factory = MemorySandboxFactory(backend.memory_backend, self._lifecycle.make, backend.backend)
        else:
            self._factory = LayeredSandboxFactory(
                layer_cache, self._lifecycle.make, groups.prefetch_move, f"back end {backend.backend} mounts no layers"
            )
        self._closed = False
        self._capabilities = Capabilities(backend.backend, backend.isolation, available=False, reason="not probed yet")

    @classmethod
    async def open(
        cls, settings: SandboxSettings, backend: SandboxBackend, why: str = "", layer_cache: LayerCache | None = None
    ) -> LocalPool:
        """Raises Unsupported, with the step that failed and the remedy, where no sandbox can be made. `why`: this back end;
        `layer_cache`: the layers that the back end can mount."""
        try:
            ledger = CleanupLedger.at(settings.ledger)
            journal = ledger.open(f"{backend.backend} pool")
        except OSError as error:
            await backend.close()
            raise Unsupported(f"no ledger can be kept: {error}; name another folder in sandbox.ledger") from error
        pool = cls(settings, backend, ControlGroups.find(), ledger, journal, layer_cache)
        pool._reaper.start()
        try:
            await pool._prove()
        except BaseException as error:
            await pool.close()
            if isinstance(error, Unsupported) or not isinstance(error, SandboxError):
                raise
            said = str(error).removeprefix(f"back end {backend.backend}: ")
            raise Unsupported(f"back end {backend.backend}: {said}") from error
        python = interpreter.find()
        version = ".".join(map(str, python.version))
        reason = f"python {version} at {python.path}" + (f"; {why}" if why else "")
        pool._capabilities = Capabilities(
            backend.backend,
            backend.isolation,
            True,
            reason,
            pool._groups.limits,
            runner=await backend.runner(),
            cpus=pool._groups.cpus,
            uid_ranges=not backend.uid_range_problem and pool._groups.available,
            egress=backend.egress,
            snapshots=pool._factory.works,
            images=pool._factory.images,
            memory_snapshots=pool._factory.memory,
        )
        return pool

    async def _prove(self) -> None:
        sandbox = await self.create(SandboxSpec(files={"probe": b"1"}))
        cold = await sandbox.run(["/bin/sh", "-c", "cat probe"])
        warm = await sandbox.run(["python", "-c", "print(open('probe').read())"], warm=True)
        await self._factory.prove(sandbox)
        await sandbox.kill()
        if (cold.out, warm.out) != (b"1", b"1\n"):
            raise InfraError(f"the probe command failed: {cold} {warm}")

    @property
    def host_layers(self) -> LayerTransfer | None:
        """Its layers, as a fleet ships them (`fleet.host.HostLayers`); None where this back end mounts none."""
        return self._factory.layer_transfer

    def probe(self) -> Capabilities:
        return self._capabilities

    async def create(self, spec: SandboxSpec, *, key: str | None = None) -> LiveSandbox:
        if self._closed:
            raise SandboxNotFound("the pool is closed")
        spec_validation.require_supported(spec, self._backend.backend, self._backend.isolation, self._backend.egress)
        return await self._factory.create(spec, key)

    async def restore(
        self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1
    ) -> builtins.list[Sandbox | SandboxError]:
        if self._closed:
            raise SandboxNotFound("the pool is closed")
        spec_validation.require_supported(spec, self._backend.backend, self._backend.isolation, self._backend.egress)
        return [*await self._factory.restore(snapshot, spec, n)]

    def list(self, labels: dict[str, str] | None = None) -> list[Sandbox]:
        return [*self._registry.find(labels)]

    async def reap(self) -> builtins.list[str]:
        self._ttl_scheduler.end_expired()
        return [describe(one) for one in await self._reaper.reap()]

    def stats(self) -> PoolStats:
        running = self._most_running - self._running._value
        room = self._lifecycle.queue.admission
        return PoolStats(
            len(self._registry), running, room.waiting, self._registry.created, room.max_live, self._most_running
        )

    async def close(self) -> None:
        """Each part though one before it fail; what then is left stays in the ledger, for any reaper."""
        self._closed = True
        async with AsyncExitStack() as parts:  # the last one first
            parts.callback(self._journal.close)
            parts.push_async_callback(self._reaper.close)
            parts.callback(self._sign_out)
            parts.callback(self._groups.close)
            parts.push_async_callback(self._backend.close)
            parts.push_async_callback(self._egress.close)
            parts.callback(self._ttl_scheduler.close)
            parts.push_async_callback(self._factory.close)
            parts.push_async_callback(self._lifecycle.close)

    def _sign_out(self) -> None:
        for name, ways in self._belongings.items():
            if not any(isinstance(way, RemoveFolder | RemoveGroup) and os.path.lexists(way.path) for way in ways):
                self._journal.leave(name)
