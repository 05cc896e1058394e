"""A sandbox of a fleet: the one on its host, which ends with the host, and is counted as long as it lives."""

from __future__ import annotations

import builtins
import dataclasses
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Protocol

from etude.sandbox.egress.decisions import Decision
from etude.sandbox.errors import InfraError, SandboxDied, SandboxError, SandboxNotFound, UserError
from etude.sandbox.operation_scope import OperationScope
from etude.sandbox.protocol import Process, Sandbox
from etude.sandbox.spec import (
    ExecResult,
    FileChange,
    FileEntry,
    OutputChunk,
    SandboxSpec,
    ServiceStatus,
    SnapshotRef,
    State,
    TerminalSize,
)

# Every operation of a sandbox handed on by its name: to a host over a wire, or to a sandbox behind a watch.


class ForwardingSandbox:
    """`_do` is all that a kind of relay must say. Signatures are those of `sandbox.protocol.Sandbox`; they are checked at the other end."""

    id: str
    spec: SandboxSpec

    async def _do(self, operation: str, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def run(self, *args: Any, **named: Any) -> ExecResult:
        return await self._do("run", *args, **named)

    async def read(self, *args: Any, **named: Any) -> bytes:
        return await self._do("read", *args, **named)

    async def write(self, *args: Any, **named: Any) -> None:
        await self._do("write", *args, **named)

    async def list(self, *args: Any, **named: Any) -> list[FileEntry]:
        return await self._do("list", *args, **named)

    async def remove(self, *args: Any, **named: Any) -> None:
        await self._do("remove", *args, **named)

    async def export(self, *args: Any, **named: Any) -> dict[str, bytes]:
        return await self._do("export", *args, **named)

    async def stat(self, *args: Any, **named: Any) -> FileEntry:
        return await self._do("stat", *args, **named)

    async def put_tar(self, *args: Any, **named: Any) -> None:
        await self._do("put_tar", *args, **named)

    async def get_tar(self, *args: Any, **named: Any) -> bytes:
        return await self._do("get_tar", *args, **named)

    async def snapshot(self, *args: Any, **named: Any) -> SnapshotRef:
        return await self._do("snapshot", *args, **named)

    async def diff(self, *args: Any, **named: Any) -> builtins.list[FileChange]:
        return await self._do("diff", *args, **named)

    async def git_patch(self, *args: Any, **named: Any) -> bytes:
        return await self._do("git_patch", *args, **named)

    async def pause(self) -> None:
        await self._do("pause")

    async def resume(self) -> None:
        await self._do("resume")

    async def set_network(self, *args: Any, **named: Any) -> None:
        await self._do("set_network", *args, **named)

    async def connect(self, *args: Any, **named: Any) -> socket.socket:
        return await self._do("connect", *args, **named)

    async def services(self) -> builtins.list[ServiceStatus]:
        return await self._do("services")

    async def heartbeat(self) -> None:
        await self._do("heartbeat")

    async def extend(self, *args: Any, **named: Any) -> None:
        await self._do("extend", *args, **named)


class FleetOperations(Protocol):
    """What a sandbox needs of its fleet."""

    async def remember(self, box: FleetSandbox, ref: SnapshotRef) -> None: ...
    async def bring(self, box: FleetSandbox, ref: SnapshotRef) -> None:
        """To its host. Raises InfraError where no host has it."""
        ...

    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1) -> list[Sandbox | SandboxError]: ...


class FleetSandbox(ForwardingSandbox):
    """`on_end` is called once, with true where it died rather than was killed. It is never replaced by another."""

    def __init__(
        self,
        host: str,
        key: str,
        spec: SandboxSpec,
        inner: Sandbox,
        operations: OperationScope,
        created_s: float,
        fleet: FleetOperations,
    ) -> None:
        self.host, self.key, self.spec, self.created_s = host, key, spec, created_s
        self.id = f"{host}/{inner.id}"
        self.on_end: Callable[[bool], None] = lambda died: None
        self._inner, self._operations, self._fleet = inner, operations, fleet
        self._ended = False

    @property
    def state(self) -> State:
        return "dead" if self._ended or self._operations.why else self._inner.state

    @property
    def deadline_s(self) -> float | None:
        return self._inner.deadline_s

    @property
    def decisions(self) -> builtins.list[Decision]:
        return self._inner.decisions

    async def exec(self, *args: Any, **named: Any) -> Process:
        return _ScopedProcess(await self._do("exec", *args, **named), self)

    async def snapshot(self, name: str = "", *, memory: bool = False) -> SnapshotRef:
        ref = await self._do("snapshot", name, memory=memory)
        if not memory:
            await self._fleet.remember(self, ref)
        return ref

    async def fork(self, n: int = 1, *, memory: bool = False) -> builtins.list[Sandbox | SandboxError]:
        """Children may be born on other hosts, but for those with memory, which only this one has."""
        if memory:
            return await self._do("fork", n, memory=True)
        return await self._fleet.restore(await self.snapshot(), dataclasses.replace(self.spec, files={}), n)

    async def diff(self, since: SnapshotRef | None = None) -> builtins.list[FileChange]:
        return await self._since("diff", since)

    async def git_patch(self, since: SnapshotRef | None = None) -> bytes:
        return await self._since("git_patch", since)

    async def kill(self) -> None:
        if self._ended:
            return
        self.end(died=False)
        try:
            await self._operations.hold(self._inner.kill())
        except SandboxDied:
            return  # it went with its host: gone as intended

    def end(self, died: bool) -> None:
        """It is over; said once."""
        if not self._ended:
            self._ended = True
            self.on_end(died)

    async def _do(self, operation: str, *args: Any, **named: Any) -> Any:
        return await self.hold(getattr(self._inner, operation)(*args, **named))

    async def _since(self, operation: str, since: SnapshotRef | None) -> Any:
        """Its host may not have the snapshot yet: it was made on another one."""
        try:
            return await self._do(operation, since)
        except (UserError, SandboxNotFound):
            if since is None or self.state == "dead":
                raise
            with suppress(InfraError):  # no host has it: the same error as its host's
                await self._fleet.bring(self, since)
        return await self._do(operation, since)

    async def hold(self, work: Any) -> Any:
        if self._ended and self._operations.why is None:
            work.close()
            raise SandboxNotFound(f"{self.id} is gone")
        try:
            return await self._operations.hold(work)
        except SandboxDied:
            self.end(died=True)
            raise
        except SandboxNotFound:
            if self._inner.state == "dead":
                self.end(died=False)
            raise


class _ScopedProcess:
    """A running command that fails when its host is lost."""

    def __init__(self, process: Process, box: FleetSandbox) -> None:
        self._process, self._box = process, box

    async def stream(self) -> AsyncIterator[OutputChunk]:
        chunks = self._process.stream()
        while True:
            try:
                yield await self._box.hold(_next(chunks))
            except StopAsyncIteration:
                return

    async def write(self, data: bytes) -> None:
        await self._box.hold(self._process.write(data))

    async def close_stdin(self) -> None:
        await self._box.hold(self._process.close_stdin())

    async def resize(self, size: TerminalSize) -> None:
        await self._box.hold(self._process.resize(size))

    async def signal(self, number: int) -> None:
        await self._box.hold(self._process.signal(number))

    async def wait(self) -> ExecResult:
        return await self._box.hold(self._process.wait())


async def _next(chunks: AsyncIterator[OutputChunk]) -> OutputChunk:
    return await anext(chunks)
