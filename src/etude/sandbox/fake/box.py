"""A sandbox in memory: the whole interface, with costs and faults. It isolates nothing, since nothing real runs in it."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import socket
from collections.abc import Mapping
from typing import Any, Protocol

from etude.sandbox.egress.decisions import Decision
from etude.sandbox.errors import DiskFull, SandboxDied, SandboxError, SandboxNotFound, Unsupported, UserError
from etude.sandbox.fake import patch
from etude.sandbox.fake.alarms import Alarms
from etude.sandbox.fake.archive import pack, unpack
from etude.sandbox.fake.command import FakeCommand, Program
from etude.sandbox.fake.faults import Faults
from etude.sandbox.fake.files import FakeFiles
from etude.sandbox.fake.layer import FakeLayer, FakeLayerStore
from etude.sandbox.fake.programs import execute
from etude.sandbox.operation_scope import OperationScope
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import (
    ExecResult,
    FileChange,
    FileEntry,
    Network,
    SandboxSpec,
    ServiceStatus,
    SnapshotRef,
    State,
    TerminalSize,
)


class FakeWorld(Protocol):
    faults: Faults
    host_layers: FakeLayerStore
    lifetimes: Alarms
    running: asyncio.Semaphore
    programs: Mapping[str, Program]

    def cost(self, operation: str) -> float: ...
    def require_network(self, network: Network) -> None: ...
    def forget(self, name: str) -> None: ...
    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1) -> list[Sandbox | SandboxError]: ...


class FakeSandbox:
    def __init__(self, name: str, spec: SandboxSpec, world: FakeWorld, layers: tuple[FakeLayer, ...]) -> None:
        self.id, self.spec, self._world = name, spec, world
        self.files = FakeFiles(spec.workdir, spec.disk_mb << 20, layers)
        self.policies = [spec.network]  # every network policy it has had
        self._birth = layers
        self._operations = OperationScope()
        self._goes = asyncio.Event()
        self._goes.set()
        self._commands: set[FakeCommand] = set()
        for path, data in spec.files.items():
            self.files.write(path, data, None)

    @property
    def state(self) -> State:
        return "dead" if self._operations.why else "running" if self._goes.is_set() else "paused"

    @property
    def deadline_s(self) -> float | None:
        return self._world.lifetimes.left_s(self.id)

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
        if not argv or timeout_s <= 0 or max_output_bytes < 0:
            raise UserError(f"run needs a command, a time and a limit, got {argv!r}, {timeout_s} s, {max_output_bytes}")
        command = self._command(argv, env, stdin)
        command.limit_bytes = max_output_bytes
        return command.with_output(await self._do("command", self._finish(command, timeout_s)))

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
    ) -> FakeCommand:
        if user is not None:
            raise Unsupported("user: back end fake knows none; leave it out")
        command = self._command(argv, env, stdin)
        command.size, command.limit_bytes = tty, max_output_bytes
        await self._do("command", _nothing())
        command.task = asyncio.create_task(self._operations.hold(self._finish(command, timeout_s)))
        command.task.add_done_callback(lambda task: None if task.cancelled() else task.exception() and None)
        return command

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        await self._do("file", _nothing())
        return self.files.read(path, max_bytes, offset)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await self._do("file", _nothing())
        faults = self._world.faults
        if faults.strikes("disk_full"):
            raise DiskFull(f"{path}: no space left (injected)")
        if faults.strikes("partial_write"):  # it dies within a write; whole or not at all means: not at all
            self.end(lambda: SandboxDied(f"{self.id} died while {path} was being written (injected)"))
            raise SandboxDied(f"{self.id} died while {path} was being written (injected)")
        self.files.write(path, data, mode)

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        await self._do("file", _nothing())
        return self.files.entries(path, recursive, max_entries)

    async def stat(self, path: str) -> FileEntry:
        await self._do("file", _nothing())
        name = self.files.resolve(path)
        file = self.files.find(name)
        if file is not None:
            return FileEntry(path, "file", len(file.data), file.mode)
        if any(True for _ in self.files.under(name)) or f"/{name}" == self.spec.workdir:
            return FileEntry(path, "dir", 0, 0o755)
        raise UserError(f"{path}: no such file or folder")

    async def remove(self, path: str) -> None:
        await self._do("file", _nothing())
        self.files.remove(path)

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        entries = await self.list(path, max_entries=1 << 30)
        names = [entry.path for entry in entries if entry.kind == "file"]
        return {name: self.files.read(f"{path}/{name}", max_bytes, 0) for name in names}

    async def put_tar(self, path: str, archive: bytes) -> None:
        await self._do("file", _nothing())
        unpack(self.files, path, archive)

    async def get_tar(self, path: str = ".", *, max_bytes: int = 64 << 20) -> bytes:
        await self._do("file", _nothing())
        return pack(self.files, path, max_bytes)

    async def snapshot(self, name: str = "", *, memory: bool = False) -> SnapshotRef:
        if memory:
            raise Unsupported("snapshot with memory: back end fake has no processes to keep; leave memory out")
        await self._do("snapshot", _nothing())
        return self._world.host_layers.keep(self.files.freeze(), name)

    async def fork(self, n: int = 1, *, memory: bool = False) -> builtins.list[Any]:
        ref = await self.snapshot(memory=memory)
        return await self._world.restore(ref, dataclasses.replace(self.spec, files={}), n)

    async def diff(self, since: SnapshotRef | None = None) -> builtins.list[FileChange]:
        await self._do("file", _nothing())
        return self.files.changes(self._base(since))

    async def git_patch(self, since: SnapshotRef | None = None) -> bytes:
        await self._do("file", _nothing())
        return patch.git_patch(self.files, self._base(since))

    async def pause(self) -> None:
        self._goes.clear()

    async def resume(self) -> None:
        self._goes.set()

    async def set_network(self, network: Network) -> None:
        self._world.require_network(network)
        await self._do("file", _nothing())
        self.policies.append(network)

    @property
    def decisions(self) -> builtins.list[Decision]:
        return []  # nothing inside asks for anything

    async def connect(self, port: int) -> socket.socket:
        raise UserError(f"connect: nothing listens on port {port}; in a fake sandbox nothing ever does")

    async def services(self) -> builtins.list[ServiceStatus]:
        return [ServiceStatus(one.name, one.command[0] in self._world.programs) for one in self.spec.services]

    async def heartbeat(self) -> None:
        await self._do("file", _nothing())

    async def extend(self, ttl_s: float) -> None:
        self._world.lifetimes.extend(self.id, ttl_s)

    async def kill(self) -> None:
        if self._operations.why is None:
            self.end(lambda: SandboxNotFound(f"{self.id} was killed"))
            await asyncio.sleep(self._world.cost("kill"))

    def end(self, why: Any) -> None:
        """At once: whatever waits raises `why()`."""
        self._operations.fail(why)
        for command in self._commands:
            command.end()
        self._world.forget(self.id)

    def _command(self, argv: builtins.list[str] | str, env: dict[str, str] | None, stdin: bytes | None) -> FakeCommand:
        words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else builtins.list(argv)
        if not words or any("\0" in word for word in words):
            raise UserError(f"a command is one word or more, without a zero byte; got {argv!r}")
        return FakeCommand(words, {**self.spec.env, **(env or {})}, self.files, stdin)

    def _base(self, since: SnapshotRef | None) -> tuple[FakeLayer, ...]:
        return self._birth if since is None else self._world.host_layers.find(since.digest)

    async def _do(self, operation: str, work: Any) -> Any:
        """A use: its cost, its faults, and its end if the sandbox ends meanwhile."""
        if self._operations.why is not None:
            work.close()
            raise self._operations.why()
        self._world.lifetimes.used(self.id)
        return await self._operations.hold(self._paid(operation, work))

    async def _paid(self, operation: str, work: Any) -> Any:
        try:
            await self._goes.wait()
            if self._world.faults.strikes("slow"):
                await asyncio.sleep(self._world.faults.plan.slow_s)
            if cost := self._world.cost(operation):
                await asyncio.sleep(cost)
            if operation == "command" and self._world.faults.strikes("dies_in_command"):
                self.end(lambda: SandboxDied(f"{self.id} died in a command (injected)"))
                raise SandboxDied(f"{self.id} died in a command (injected)")
        except BaseException:
            work.close()
            raise
        return await work

    async def _finish(self, command: FakeCommand, timeout_s: float | None) -> ExecResult:
        async with self._world.running:
            return await self._execute(command, timeout_s)

    async def _execute(self, command: FakeCommand, timeout_s: float | None) -> ExecResult:
        loop = asyncio.get_running_loop()
        start, number = loop.time(), 0
        scope = asyncio.timeout(timeout_s)

        def stop(signal: int) -> None:
            nonlocal number
            if not scope.expired() and command in self._commands:
                number = signal
                scope.reschedule(loop.time())

        command.stop = stop
        self._commands.add(command)
        try:
            async with scope:
                rc = await execute(command, self._world.programs)
            return ExecResult(rc, b"", b"", duration_s=loop.time() - start)
        except TimeoutError:
            if number:
                return ExecResult(128 + number, b"", b"", signal=number, duration_s=loop.time() - start)
            return ExecResult(137, b"", b"", signal=9, timed_out=True, duration_s=loop.time() - start)
        finally:
            self._commands.discard(command)
            command.end()


async def _nothing() -> None:
    """The work of an operation that only costs time; what it does follows at once, so that it happens at one moment."""
