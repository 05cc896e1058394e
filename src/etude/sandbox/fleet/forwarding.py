"""Every operation of a sandbox handed on by its name: to a host over a wire, or to a sandbox behind a watch."""

from __future__ import annotations

import builtins
import socket
from typing import Any

from etude.sandbox.spec import ExecResult, FileChange, FileEntry, SandboxSpec, ServiceStatus, SnapshotRef


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
