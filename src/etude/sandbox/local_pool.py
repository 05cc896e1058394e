"""The pool of this machine's own sandboxes, whichever `Cradle` bears them: namespaces, bubblewrap, podman, or a plain process.

Promises: a sandbox is handed out whole or not at all; everything that goes wrong is a typed error; closing the pool, or the death of
this process, ends every sandbox it made.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from contextlib import AsyncExitStack

from etude.sandbox import door, interpreter
from etude.sandbox.cleanup.journal import Journal
from etude.sandbox.cleanup.ledger import Ledger
from etude.sandbox.cleanup.undo import Folder, Group, Undo
from etude.sandbox.creation import Cradle, Maker
from etude.sandbox.errors import InfraError, SandboxError, SandboxNotFound, Unsupported
from etude.sandbox.launch.memory import Memories
from etude.sandbox.layered.freight import Freight
from etude.sandbox.layered.layering import Layering
from etude.sandbox.layered.shelf import Shelf
from etude.sandbox.lifetimes.births import Births
from etude.sandbox.lifetimes.hours import Clockwork
from etude.sandbox.lifetimes.reaping import Reaping, told
from etude.sandbox.lifetimes.turnstile import turnstile
from etude.sandbox.limits.groups import ControlGroups
from etude.sandbox.network.gates import Gates
from etude.sandbox.protocol import Sandbox
from etude.sandbox.register import Register
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Capabilities, PoolStats, SandboxSpec, SnapshotRef
from etude.sandbox.wire.live import LiveSandbox


class LocalPool:
    """Makes sandboxes; open it with `LocalPool.open`, which proves that it works by making one."""

    def __init__(
        self,
        settings: SandboxSettings,
        cradle: Cradle,
        groups: ControlGroups,
        ledger: Ledger,
        journal: Journal,
        shelf: Shelf | None = None,
    ) -> None:
        self._cradle, self._groups = cradle, groups
        self._most_running = settings.max_running
        self._running = asyncio.Semaphore(settings.max_running)
        self._journal = journal
        self._belongings: dict[str, list[Undo]] = {
            "cradle": [*cradle.leavings()],
            "groups": [Group(str(folder)) for folder in groups.pools],
        }
        for name, ways in self._belongings.items():
            journal.enter(name, f"{name} of a pool", ways)
        self._reaping = Reaping(ledger)
        self._hours = Clockwork()
        self._register = Register()
        self._gates = Gates(settings)
        gate = turnstile(settings.max_live, settings.creates_per_s, settings.max_waiting, settings.patience_s)
        self._maker = Maker(cradle, groups, self._running, self._gates)
        self._births = Births(self._maker, self._register, gate, self._hours, self._journal)
        self._layering: Layering | Memories
        if cradle.recall is not None:
            self._layering = Memories(cradle.recall, self._births.make, cradle.backend)
        else:
            self._layering = Layering(
                shelf, self._births.make, groups.stir, f"back end {cradle.backend} mounts no layers"
            )
        self._closed = False
        self._capabilities = Capabilities(cradle.backend, cradle.isolation, available=False, reason="not probed yet")

    @classmethod
    async def open(
        cls, settings: SandboxSettings, cradle: Cradle, why: str = "", shelf: Shelf | None = None
    ) -> LocalPool:
        """Raises Unsupported, with the step that failed and the remedy, where no sandbox can be made. `why`: this back end;
        `shelf`: the layers that the cradle can mount."""
        try:
            ledger = Ledger.at(settings.ledger)
            journal = ledger.open(f"{cradle.backend} pool")
        except OSError as error:
            await cradle.close()
            raise Unsupported(f"no ledger can be kept: {error}; name another folder in sandbox.ledger") from error
        pool = cls(settings, cradle, ControlGroups.find(), ledger, journal, shelf)
        pool._reaping.start()
        try:
            await pool._prove()
        except BaseException as error:
            await pool.close()
            if isinstance(error, Unsupported) or not isinstance(error, SandboxError):
                raise
            said = str(error).removeprefix(f"back end {cradle.backend}: ")
            raise Unsupported(f"back end {cradle.backend}: {said}") from error
        python = interpreter.find()
        version = ".".join(map(str, python.version))
        reason = f"python {version} at {python.path}" + (f"; {why}" if why else "")
        pool._capabilities = Capabilities(
            cradle.backend,
            cradle.isolation,
            True,
            reason,
            pool._groups.limits,
            runner=await cradle.runner(),
            cpus=pool._groups.cpus,
            uid_ranges=not cradle.unranged and pool._groups.available,
            egress=cradle.egress,
            snapshots=pool._layering.works,
            images=pool._layering.images,
            memory_snapshots=pool._layering.memory,
        )
        return pool

    async def _prove(self) -> None:
        sandbox = await self.create(SandboxSpec(files={"probe": b"1"}))
        cold = await sandbox.run(["/bin/sh", "-c", "cat probe"])
        warm = await sandbox.run(["python", "-c", "print(open('probe').read())"], warm=True)
        await self._layering.prove(sandbox)
        await sandbox.kill()
        if (cold.out, warm.out) != (b"1", b"1\n"):
            raise InfraError(f"the probe command failed: {cold} {warm}")

    @property
    def shelf(self) -> Freight | None:
        """Its layers, as a fleet ships them (`fleet.host.Shelf`); None where this back end mounts none."""
        return self._layering.freight

    def probe(self) -> Capabilities:
        return self._capabilities

    async def create(self, spec: SandboxSpec, *, key: str | None = None) -> LiveSandbox:
        if self._closed:
            raise SandboxNotFound("the pool is closed")
        door.require(spec, self._cradle.backend, self._cradle.isolation, self._cradle.egress)
        return await self._layering.create(spec, key)

    async def restore(
        self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1
    ) -> builtins.list[Sandbox | SandboxError]:
        if self._closed:
            raise SandboxNotFound("the pool is closed")
        door.require(spec, self._cradle.backend, self._cradle.isolation, self._cradle.egress)
        return [*await self._layering.restore(snapshot, spec, n)]

    def list(self, labels: dict[str, str] | None = None) -> list[Sandbox]:
        return [*self._register.find(labels)]

    async def reap(self) -> builtins.list[str]:
        self._hours.strike()
        return [told(one) for one in await self._reaping.reap()]

    def stats(self) -> PoolStats:
        running = self._most_running - self._running._value
        room = self._births.turnstile.admission
        return PoolStats(
            len(self._register), running, room.waiting, self._register.created, room.max_live, self._most_running
        )

    async def close(self) -> None:
        """Each part though one before it fail; what then is left stays in the ledger, for any reaper."""
        self._closed = True
        async with AsyncExitStack() as parts:  # the last one first
            parts.callback(self._journal.close)
            parts.push_async_callback(self._reaping.close)
            parts.callback(self._sign_out)
            parts.callback(self._groups.close)
            parts.push_async_callback(self._cradle.close)
            parts.push_async_callback(self._gates.close)
            parts.callback(self._hours.close)
            parts.push_async_callback(self._layering.close)
            parts.push_async_callback(self._births.close)

    def _sign_out(self) -> None:
        for name, ways in self._belongings.items():
            if not any(isinstance(way, Folder | Group) and os.path.lexists(way.path) for way in ways):
                self._journal.leave(name)
