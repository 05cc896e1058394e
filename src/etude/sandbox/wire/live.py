"""The client's view of one live sandbox, whichever back end made it: commands, files, death.

Promise: `kill` returns when everything inside is gone, and everything outside that was made for it.
"""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from etude.sandbox.egress.decisions import Decision
from etude.sandbox.errors import SandboxError, SandboxNotFound, Unsupported, UserError
from etude.sandbox.inside import frames
from etude.sandbox.lifetime import Lifetime
from etude.sandbox.limits.group import ControlGroup
from etude.sandbox.network.egress import SandboxEgress
from etude.sandbox.protocol import Sandbox
from etude.sandbox.refusals import Refusals
from etude.sandbox.spec import (
    ExecResult,
    FileChange,
    Network,
    SandboxSpec,
    ServiceStatus,
    SnapshotRef,
    State,
    TerminalSize,
)
from etude.sandbox.wire import process, request
from etude.sandbox.wire.calls import SandboxCalls
from etude.sandbox.wire.channel import ControlChannel

if TYPE_CHECKING:
    from etude.sandbox.wire.live import LiveSandbox


class BackendHandle(Protocol):
    """What started a sandbox and lives as long as it. `first`: a pidfd of what counts as its first process, where that does not introduce
    itself; else -1."""

    first: int

    def explain(self, error: SandboxError) -> SandboxError:
        """The error to raise when the sandbox never came up, with what the launcher said."""
        ...

    async def end(self) -> None:
        """Return when it is gone; it ends by itself when the sandbox does, else it is killed. Idempotent."""
        ...


class ServiceMonitor(Protocol):
    """The owner of a sandbox' services."""

    async def status(self) -> list[ServiceStatus]: ...


class SnapshotManager(Protocol):
    """Makes copies of one sandbox: see `snapshots.manager` (files, as layers) and `launch.memory` (all processes and files)."""

    async def snapshot(self, name: str, memory: bool) -> SnapshotRef: ...
    async def fork(self, n: int, memory: bool) -> list[LiveSandbox | SandboxError]: ...
    async def diff(self, since: SnapshotRef | None) -> list[FileChange]: ...
    async def git_patch(self, since: SnapshotRef | None) -> bytes: ...


class SnapshotOperations(Refusals):
    """Snapshot operations. The pool sets `snapshot_manager` before it hands the sandbox out; without one each is refused."""

    snapshot_manager: SnapshotManager | None = None

    async def snapshot(self, name: str = "", *, memory: bool = False) -> SnapshotRef:
        return await self._require_snapshots("snapshot").snapshot(name, memory)

    async def fork(self, n: int = 1, *, memory: bool = False) -> list[Sandbox | SandboxError]:
        return [*await self._require_snapshots("fork").fork(n, memory)]

    async def diff(self, since: SnapshotRef | None = None) -> list[FileChange]:
        return await self._require_snapshots("diff").diff(since)

    async def git_patch(self, since: SnapshotRef | None = None) -> bytes:
        return await self._require_snapshots("git_patch").git_patch(since)

    def _require_snapshots(self, demand: str) -> SnapshotManager:
        if self.snapshot_manager is None:
            raise self._refusal(demand)
        return self.snapshot_manager


class LiveSandbox(SandboxCalls, SnapshotOperations):
    """One live sandbox. Its maker sets `birth`, `group` and `lifetime` before it is handed out, where there are any."""

    def __init__(self, name: str, spec: SandboxSpec, channel: ControlChannel, running: asyncio.Semaphore) -> None:
        super().__init__(name, spec, channel)
        self.backend_handle: BackendHandle | None = None
        self.group: ControlGroup | None = None
        self.egress: SandboxEgress | None = None
        self.end_signal = signal.SIGKILL
        self._running = running
        self._at_death: list[Callable[[], object]] = []
        self._afterwards: list[Callable[[], Awaitable[object] | object]] = []
        self._gone: asyncio.Future[None] | None = None
        self._cleanup_task: asyncio.Task[None] | None = None  # held, or it might be collected before it ends
        channel.on_death = self._die
        self.lifetime = Lifetime(None, None, time.monotonic)
        self.supervisor: ServiceMonitor | None = None

    @property
    def lifetime(self) -> Lifetime:
        """How long it may live; each stream opened from now on is a use while it is open."""
        return self._lifetime

    @lifetime.setter
    def lifetime(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime
        self._channel.on_open = lifetime.begin

    @property
    def deadline_s(self) -> float | None:
        return self._lifetime.left_s

    @property
    def pidfd(self) -> int:
        """Of its first process."""
        return self._channel.pidfd

    @property
    def granted(self) -> dict[str, int]:
        """Descriptors the inside gave us, by name; see `ControlChannel`."""
        return self._channel.granted

    def call_on_death(self, ending: Callable[[], object]) -> None:
        """Call it at the moment this sandbox can't be used any more; its processes may still be dying."""
        self._at_death.append(ending)

    def call_when_gone(self, ending: Callable[[], Awaitable[object] | object]) -> None:
        """Call (and await) it when everything inside is gone; the last one first. `kill` returns after that."""
        self._afterwards.append(ending)

    async def run(
        self,
        argv: list[str] | str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float = 10.0,
        stdin: bytes = b"",
        max_output_bytes: int = 65536,
        warm: bool = False,
    ) -> ExecResult:
        head = request.command(argv, cwd, env, timeout_s, max_output_bytes)
        head["warm"] = warm
        async with self._turn():
            frame = await self._call(
                frames.RUN, head, stdin, limit_bytes=2 * max_output_bytes, patience_s=timeout_s + process.GRACE_S
            )
        return self._judged(self._parsed(request.ran, frame))

    async def exec(
        self,
        argv: list[str] | str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
        stdin: bytes | None = b"",
        tty: TerminalSize | None = None,
        max_output_bytes: int = 1 << 20,
    ) -> process.LiveProcess:
        """Not counted among the running commands that a pool bounds: it may be a server or a shell, and lives as long as it likes."""
        head = request.command(argv, cwd, env, timeout_s, max_output_bytes)
        head["user"] = user
        await self._flow(frames.EXEC)
        return process.LiveProcess(self._channel, head, stdin, tty, self._judged)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """A place among the commands that run at once. To wait for one is a use."""
        finish = self._lifetime.begin()
        try:
            async with self._running:
                yield
        finally:
            finish()

    def _judged(self, result: ExecResult) -> ExecResult:
        """With what only the outside saw."""
        if self.group is not None and self.group.ran_out_of_memory():
            return dataclasses.replace(result, oom=True)
        return result

    async def services(self) -> builtins.list[ServiceStatus]:
        return [] if self.supervisor is None else await self.supervisor.status()

    def require_alive(self) -> None:
        """Raises what every call would."""
        self._channel.require_alive()

    def leave(self) -> None:
        """From now on until `come_back` every request waits, and the end of its process is no death. Raises UserError where one is under way."""
        self._channel.require_alive()
        if self.state == "paused":
            raise UserError(f"{self.id} is paused, and would be so in every copy of its memory; resume it first")
        if not self._here.is_set() or not self._channel.idle:
            raise UserError(
                f"{self.id}: a command or a request is under way (a service is one too), and no copy of its memory could go on with it; "
                "wait for its end, or start it in the background with run('… &')"
            )
        self._here.clear()
        self._channel.hear(False)

    def come_back(self, channel: ControlChannel | None = None, backend_handle: BackendHandle | None = None) -> None:
        """It is where it was, or in another process over another connection."""
        if channel is not None:
            channel.on_death, before = self._die, self._channel
            self._channel, self.backend_handle = channel, backend_handle
            self.lifetime = self._lifetime
            before.part()
        self._channel.hear(True)
        self._here.set()

    async def heartbeat(self) -> None:
        self._channel.require_alive()
        self._lifetime.use()

    async def extend(self, ttl_s: float) -> None:
        self._channel.require_alive()
        self._lifetime.extend(ttl_s)

    def end(self, why: str) -> None:
        """Begin to kill it; later calls raise with the reason."""
        self._channel.fail(SandboxNotFound(f"{self.id} {why}"))

    async def set_network(self, network: Network) -> None:
        if network == self.spec.network:
            return
        if self.egress is None or self.state == "dead":
            raise Unsupported(
                f"{self.id} was born with network {self.spec.network.mode!r} and has no way out that could be opened; "
                "create it with Network('allowlist'), which without hosts is closed"
            )
        try:
            await self.egress.switch(network)
        finally:
            self.spec = dataclasses.replace(self.spec, network=self.egress.network)  # what a fork is born with

    @property
    def decisions(self) -> builtins.list[Decision]:
        return [] if self.egress is None else self.egress.decisions

    async def kill(self) -> None:
        self.end("was killed")
        if self._gone is not None:
            await asyncio.shield(self._gone)
        await self._clean_up()  # what was set or asked for since

    def _die(self) -> None:
        """Kill PID 1 (the kernel kills the rest before its pidfd becomes readable) and note when all is gone."""
        self.state: State = "dead"
        self._flows.set()  # every waiting caller gets the error
        self._here.set()
        for ending in self._at_death:
            ending()
        pidfd = self._channel.pidfd
        if pidfd < 0:
            return
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        self._gone = gone

        def finished() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            if self.backend_handle is not None or self.group is not None or self._afterwards:
                self._cleanup_task = loop.create_task(self._clean_up())
                self._cleanup_task.add_done_callback(lambda _: gone.done() or gone.set_result(None))
            elif not gone.done():
                gone.set_result(None)

        try:
            signal.pidfd_send_signal(pidfd, self.end_signal)
        except ProcessLookupError:
            finished()
            return
        loop.add_reader(pidfd, finished)

    async def _clean_up(self) -> None:
        """What is left outside of a dead sandbox: its launcher, its control group, what others asked for. Idempotent."""
        try:
            if self.backend_handle is not None:
                await self.backend_handle.end()
            if self.group is not None:
                group, self.group = self.group, None
                await group.remove()
        finally:
            await self._run_callbacks()

    async def _run_callbacks(self) -> None:
        """All of them, though one fail."""
        if not self._afterwards:
            return
        try:
            awaited = self._afterwards.pop()()
            if isinstance(awaited, Awaitable):
                await awaited
        finally:
            await self._run_callbacks()
