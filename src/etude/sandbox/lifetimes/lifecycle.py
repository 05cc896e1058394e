"""Every creation of a pool goes through here: admitted in its turn, recorded in the ledger, created, watched. Each step is undone in
reverse order, however the sandbox ends, and also when its creation fails.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from etude.sandbox.cleanup.journal import Journal
from etude.sandbox.cleanup.process import pid_of
from etude.sandbox.cleanup.undo import KillProcess
from etude.sandbox.creation import EMPTY_BASE, SandboxBase, SandboxCreator
from etude.sandbox.errors import InfraError, SandboxNotFound, UserError
from etude.sandbox.lifetime import Lifetime
from etude.sandbox.lifetimes.admission import AdmissionQueue
from etude.sandbox.lifetimes.ttl_scheduler import TtlScheduler
from etude.sandbox.registry import SandboxRegistry
from etude.sandbox.services.supervisor import ServiceSupervisor
from etude.sandbox.spec import SandboxSpec
from etude.sandbox.wire.live import LiveSandbox

Created = TypeVar("Created")


@dataclass
class _Creation(Generic[Created]):
    demand: object
    task: asyncio.Task[Created]
    waiting: int = 0


class IdempotencyKeys(Generic[Created]):
    """The same key gives the same sandbox: a repeated request, whose answer was lost, makes no second one.

    Promises: one creation, however many callers wait for it; it is cancelled only when all callers have given up; a failure forgets the
    key, so that the next request retries. The creator calls `forget` when the sandbox has ended.
    """

    def __init__(self) -> None:
        self._creations: dict[str, _Creation[Created]] = {}

    async def once(self, key: str, demand: object, make: Callable[[], Awaitable[Created]]) -> Created:
        """Raises UserError for a key that belongs to another spec."""
        creation = self._creations.get(key)
        if creation is None:
            creation = self._creations[key] = _Creation(demand, asyncio.ensure_future(_awaited(make)))
        if creation.demand != demand:
            raise UserError(f"key {key!r} belongs to another spec; use a new key for each sandbox")
        creation.waiting += 1
        try:
            return await asyncio.shield(creation.task)
        except asyncio.CancelledError:
            if creation.waiting == 1 and not creation.task.done():
                creation.task.cancel()
                self.forget(key)
            raise
        except BaseException:
            if self._creations.get(key) is creation:
                self.forget(key)
            raise
        finally:
            creation.waiting -= 1

    def forget(self, key: str) -> None:
        self._creations.pop(key, None)


async def _awaited(make: Callable[[], Awaitable[Created]]) -> Created:
    return await make()


class SandboxLifecycle:
    """`make` for create, restore and fork alike."""

    def __init__(
        self,
        creator: SandboxCreator,
        registry: SandboxRegistry,
        queue: AdmissionQueue,
        scheduler: TtlScheduler,
        journal: Journal,
    ) -> None:
        self.queue = queue
        self._creator, self._registry, self._scheduler, self._journal = creator, registry, scheduler, journal
        self._keys: IdempotencyKeys[LiveSandbox] = IdempotencyKeys()
        self._numbers = itertools.count(1)
        self._not_reaped: set[LiveSandbox] = set()  # also those that died by themselves a moment ago
        self._ongoing: set[asyncio.Future[None]] = set()
        self._closed = False

    async def make(self, spec: SandboxSpec, base: SandboxBase = EMPTY_BASE, *, key: str | None = None) -> LiveSandbox:
        """Raises what a birth raises, CapacityExhausted when there is no room, UserError for a key of another demand."""
        Lifetime(spec.ttl_s, spec.idle_ttl_s, self._scheduler.clock)  # refused before it waits
        if key is None:
            return await self._create_when_admitted(spec, base, None)
        return await self._keys.once(key, (spec, base), lambda: self._create_when_admitted(spec, base, key))

    async def close(self) -> None:
        """Returns when all it ever made is gone."""
        self._closed = True
        self.queue.close(SandboxNotFound("the pool is closed"))
        await asyncio.gather(*self._ongoing, *(sandbox.kill() for sandbox in list(self._not_reaped)))

    async def _create_when_admitted(self, spec: SandboxSpec, base: SandboxBase, key: str | None) -> LiveSandbox:
        await self.queue.enter()
        ongoing = asyncio.get_running_loop().create_future()
        self._ongoing.add(ongoing)
        try:
            return await self._create(f"sb-{next(self._numbers)}", spec, base, key)
        finally:
            self._ongoing.discard(ongoing)
            ongoing.set_result(None)

    async def _create(self, name: str, spec: SandboxSpec, base: SandboxBase, key: str | None) -> LiveSandbox:
        try:
            self._record(name, spec)
            sandbox = await self._creator.make(spec, base, name)
        except BaseException:
            self._forget(name)
            raise
        self._not_reaped.add(sandbox)
        sandbox.call_when_gone(lambda: self._not_reaped.discard(sandbox))
        sandbox.call_when_gone(lambda: self._forget(name))
        if self._closed or sandbox.state == "dead":
            await sandbox.kill()
            raise SandboxNotFound(f"{name} ended while it was being made: the pool was closed, or its runner died")
        if (process := KillProcess.of(pid_of(sandbox.pidfd))) is not None:
            try:
                self._journal.add(name, process)
            except OSError as error:
                await sandbox.kill()
                raise self._not_recorded(name, error) from error
        self._registry.enter(sandbox)
        if key is not None:
            sandbox.call_on_death(lambda: self._keys.forget(key))
        if base.memory is None or not base.memory.processes:  # else all of it runs already
            await _start_services(sandbox)
        self._watch(sandbox)  # now: its services run as long as it does, and are no use of it
        return sandbox

    def _record(self, name: str, spec: SandboxSpec) -> None:
        try:
            self._journal.enter(name, "sandbox", labels=spec.labels)
        except OSError as error:
            raise self._not_recorded(name, error) from error

    def _not_recorded(self, name: str, error: OSError) -> InfraError:
        return InfraError(
            f"{name} is not created, because it can't be recorded in the ledger ({self._journal.path}: "
            f"{error.strerror or error}); make room there, or name another folder in sandbox.ledger"
        )

    def _watch(self, sandbox: LiveSandbox) -> None:
        sandbox.lifetime = Lifetime(sandbox.spec.ttl_s, sandbox.spec.idle_ttl_s, self._scheduler.clock)
        sandbox.call_on_death(self._scheduler.watch(sandbox.lifetime, sandbox.end))

    def _forget(self, name: str) -> None:
        self._journal.leave(name)
        self.queue.leave()


async def _start_services(sandbox: LiveSandbox) -> None:
    """Start what its spec declares; it is handed out when all of that serves, or not at all."""
    if not sandbox.spec.services and not sandbox.spec.start_script:
        return
    sandbox.supervisor = ServiceSupervisor(sandbox)
    try:
        await sandbox.supervisor.start(sandbox.spec)
    except BaseException:
        await sandbox.kill()
        raise
