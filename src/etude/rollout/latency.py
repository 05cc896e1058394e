"""Replays the latency of slow tools: every command in the sandbox waits first. For the overlap benchmark."""

from __future__ import annotations

import asyncio
from typing import Any

from etude.sandbox.protocol import Disposable
from etude.sandbox.spec import ExecResult, FileEntry, SandboxSpec


class SlowSandbox:
    """A sandbox whose commands, reads, writes and listings start `latency_s` later; the rest is the inner one's."""

    def __init__(self, inner: Disposable, latency_s: float) -> None:
        self.inner = inner
        self.latency_s = latency_s
        self.id: str = inner.id
        self.spec: SandboxSpec = inner.spec

    async def run(self, argv: list[str] | str, **options: Any) -> ExecResult:
        await asyncio.sleep(self.latency_s)
        return await self.inner.run(argv, **options)

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        await asyncio.sleep(self.latency_s)
        return await self.inner.read(path, max_bytes=max_bytes, offset=offset)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await asyncio.sleep(self.latency_s)
        await self.inner.write(path, data, mode=mode)

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        await asyncio.sleep(self.latency_s)
        return await self.inner.list(path, recursive=recursive, max_entries=max_entries)

    async def remove(self, path: str) -> None:
        await self.inner.remove(path)

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        return await self.inner.export(path, max_bytes=max_bytes)

    async def kill(self) -> None:
        await self.inner.kill()
