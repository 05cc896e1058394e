"""Every birth of a pool goes through here: admitted in its turn, written down, made, watched. What is done on the way in is undone on the
way out in the reverse order, however the sandbox ends, and when its birth fails.
"""

from __future__ import annotations

import asyncio
import itertools

from etude.sandbox.cleanup.being import pid_of
from etude.sandbox.cleanup.journal import Journal
from etude.sandbox.cleanup.undo import Process
from etude.sandbox.creation import NOTHING, Base, Maker
from etude.sandbox.errors import InfraError, SandboxNotFound
from etude.sandbox.lifetime import Lifetime
from etude.sandbox.lifetimes.hours import Hours
from etude.sandbox.lifetimes.keys import Keys
from etude.sandbox.lifetimes.turnstile import Turnstile
from etude.sandbox.register import Register
from etude.sandbox.services.attendance import Attendance
from etude.sandbox.spec import SandboxSpec
from etude.sandbox.wire.live import LiveSandbox


class Births:
    """`make` for create, restore and fork alike."""

    def __init__(self, maker: Maker, register: Register, turnstile: Turnstile, hours: Hours, journal: Journal) -> None:
        self.turnstile = turnstile
        self._maker, self._register, self._hours, self._journal = maker, register, hours, journal
        self._keys: Keys[LiveSandbox] = Keys()
        self._numbers = itertools.count(1)
        self._unburied: set[LiveSandbox] = set()  # also those that died by themselves a moment ago
        self._ongoing: set[asyncio.Future[None]] = set()
        self._closed = False

    async def make(self, spec: SandboxSpec, base: Base = NOTHING, *, key: str | None = None) -> LiveSandbox:
        """Raises what a birth raises, CapacityExhausted when there is no room, UserError for a key of another demand."""
        Lifetime(spec.ttl_s, spec.idle_ttl_s, self._hours.clock)  # refused before it waits
        if key is None:
            return await self._admitted(spec, base, None)
        return await self._keys.once(key, (spec, base), lambda: self._admitted(spec, base, key))

    async def close(self) -> None:
        """Returns when all it ever made is gone."""
        self._closed = True
        self.turnstile.close(SandboxNotFound("the pool is closed"))
        await asyncio.gather(*self._ongoing, *(sandbox.kill() for sandbox in list(self._unburied)))

    async def _admitted(self, spec: SandboxSpec, base: Base, key: str | None) -> LiveSandbox:
        await self.turnstile.enter()
        ongoing = asyncio.get_running_loop().create_future()
        self._ongoing.add(ongoing)
        try:
            return await self._born(f"sb-{next(self._numbers)}", spec, base, key)
        finally:
            self._ongoing.discard(ongoing)
            ongoing.set_result(None)

    async def _born(self, name: str, spec: SandboxSpec, base: Base, key: str | None) -> LiveSandbox:
        try:
            self._write_down(name, spec)
            sandbox = await self._maker.make(spec, base, name)
        except BaseException:
            self._gone(name)
            raise
        self._unburied.add(sandbox)
        sandbox.afterwards(lambda: self._unburied.discard(sandbox))
        sandbox.afterwards(lambda: self._gone(name))
        if self._closed or sandbox.state == "dead":
            await sandbox.kill()
            raise SandboxNotFound(f"{name} ended while it was being made: the pool was closed, or its runner died")
        if (process := Process.of(pid_of(sandbox.pidfd))) is not None:
            try:
                self._journal.add(name, process)
            except OSError as error:
                await sandbox.kill()
                raise self._unwritten(name, error) from error
        self._register.enter(sandbox)
        if key is not None:
            sandbox.at_death(lambda: self._keys.forget(key))
        if base.memory is None or not base.memory.processes:  # else all of it runs already
            await _attend(sandbox)
        self._watch(sandbox)  # now: its services run as long as it does, and are no use of it
        return sandbox

    def _write_down(self, name: str, spec: SandboxSpec) -> None:
        try:
            self._journal.enter(name, "sandbox", labels=spec.labels)
        except OSError as error:
            raise self._unwritten(name, error) from error

    def _unwritten(self, name: str, error: OSError) -> InfraError:
        return InfraError(
            f"{name} is not made, because it can't be written down in the ledger ({self._journal.path}: "
            f"{error.strerror or error}); make room there, or name another folder in sandbox.ledger"
        )

    def _watch(self, sandbox: LiveSandbox) -> None:
        sandbox.lifetime = Lifetime(sandbox.spec.ttl_s, sandbox.spec.idle_ttl_s, self._hours.clock)
        sandbox.at_death(self._hours.watch(sandbox.lifetime, sandbox.end))

    def _gone(self, name: str) -> None:
        self._journal.leave(name)
        self.turnstile.leave()


async def _attend(sandbox: LiveSandbox) -> None:
    """Start what its spec declares; it is handed out when all of that serves, or not at all."""
    if not sandbox.spec.services and not sandbox.spec.start_script:
        return
    sandbox.attendance = Attendance(sandbox)
    try:
        await sandbox.attendance.start(sandbox.spec)
    except BaseException:
        await sandbox.kill()
        raise
