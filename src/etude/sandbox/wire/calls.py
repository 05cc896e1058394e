"""What the client asks of a runner: answers parsed, changes held back while the sandbox is frozen, its files."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from etude.sandbox.errors import SandboxDied, UserError
from etude.sandbox.inside import frames
from etude.sandbox.refusals import Refusals
from etude.sandbox.spec import FileEntry, SandboxSpec, State
from etude.sandbox.wire import archive as archives
from etude.sandbox.wire import request
from etude.sandbox.wire.channel import ControlChannel
from etude.sandbox.wire.exchange import PendingCall

Answer = TypeVar("Answer")

_FILE_PATIENCE_S = 30.0
_TREE_PATIENCE_S = 120.0
_MOST_OFFSET = 1 << 62
_APART_BYTES = 1 << 20  # larger archives are read in a thread: the event loop has others to serve
# What starts or changes something. It waits while a snapshot is taken, and is refused in a paused sandbox.
_CHANGES = frozenset((frames.RUN, frames.EXEC, frames.WRITE, frames.REMOVE, frames.PUT))


class SandboxCalls(Refusals):
    """The part of a live sandbox that is questions and answers."""

    def __init__(self, name: str, spec: SandboxSpec, channel: ControlChannel) -> None:
        self.id, self.spec = name, spec
        self.state: State = "running"
        self._channel = channel
        self._flows = asyncio.Event()  # unset: everything inside is frozen
        self._flows.set()
        self.stillness = asyncio.Lock()  # whose freeze it is: one snapshot's, a pause's or a resume's at a time
        self._here = asyncio.Event()  # unset: it is between two processes, as its memory is copied
        self._here.set()

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        head = {
            "path": path,
            "max_bytes": request.whole("max_bytes", max_bytes, 0, request.MOST_BYTES),
            "offset": request.whole("offset", offset, 0, _MOST_OFFSET),
        }
        return (await self._call(frames.READ, head, limit_bytes=max_bytes)).blob

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if mode is not None:
            request.whole("mode", mode, 0, 0o7777)
        await self._call(frames.WRITE, {"path": path, "mode": mode}, data)

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        request.whole("max_entries", max_entries, 0, request.MOST_BYTES)
        head = {"path": path, "recursive": recursive, "max_entries": max_entries}
        frame = await self._call(frames.LIST, head, limit_bytes=frames.MAX_FRAME_BYTES)
        return self._parsed(request.entries, frame)

    async def stat(self, path: str) -> FileEntry:
        frame = await self._call(frames.STAT, {"path": path})
        return self._parsed(lambda answer: request.entry(answer.head.get("entry")), frame)

    async def remove(self, path: str) -> None:
        await self._call(frames.REMOVE, {"path": path})

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        request.whole("max_bytes", max_bytes, 0, request.MOST_BYTES)
        frame = await self._call(
            frames.EXPORT, {"path": path, "max_bytes": max_bytes}, limit_bytes=frames.MAX_FRAME_BYTES
        )
        return self._parsed(request.contents, frame)

    async def put_tar(self, path: str, archive: bytes) -> None:
        most_bytes = self.spec.disk_mb << 20
        if len(archive) > _APART_BYTES:
            parts = await asyncio.to_thread(archives.parts, archive, most_bytes)
        else:
            parts = archives.parts(archive, most_bytes)
        await self._flow(frames.PUT)
        exchange = PendingCall(0)
        stream = self._channel.open(frames.PUT, {"path": path}, b"", exchange)
        for head, blob in parts:
            self._channel.send(frames.pack(frames.TREE, stream, head, blob))
        await self._channel.answer(exchange, _TREE_PATIENCE_S)

    async def get_tar(self, path: str = ".", *, max_bytes: int = 64 << 20) -> bytes:
        await self._flow(frames.GET)
        exchange = archives.Download(request.whole("max_bytes", max_bytes, 0, request.MOST_BYTES))
        self._channel.open(frames.GET, {"path": path, "max_bytes": max_bytes}, b"", exchange)
        await self._channel.answer(exchange, _TREE_PATIENCE_S)
        return await asyncio.to_thread(exchange.archive)

    async def connect(self, port: int) -> socket.socket:
        await self._flow(frames.CONNECT)
        head = {"port": request.whole("port", port, 1, 65535)}
        exchange = PendingCall(0, descriptors=1)
        self._channel.open(frames.CONNECT, head, b"", exchange)
        try:
            _, (fd,) = await self._channel.answer(exchange, _FILE_PATIENCE_S)
        except asyncio.CancelledError:
            exchange.forsake()
            raise
        try:
            made = socket.socket(fileno=fd)
        except OSError:
            os.close(fd)
            raise self._broken("its answer to connect is no socket") from None
        if (made.family, made.type) != (socket.AF_INET, socket.SOCK_STREAM):
            made.close()
            raise self._broken(f"its answer to connect is a socket of family {made.family}, type {made.type}")
        made.setblocking(True)
        return made

    async def pause(self) -> None:
        async with self.stillness:
            self._channel.require_alive()
            if self.state == "running":
                await self.freeze(True)
                self.state = "paused"

    async def resume(self) -> None:
        async with self.stillness:
            self._channel.require_alive()
            if self.state == "paused":
                await self.freeze(False)
                self.state = "running"

    async def freeze(self, frozen: bool) -> None:
        """Returns when every process inside but the runner has stopped, or goes on. Meanwhile nothing is changed from outside either."""
        if frozen:
            self._flows.clear()
        try:
            await self._call(frames.FREEZE, {"frozen": frozen})
        except BaseException:
            self._flows.set()
            if self._channel.alive:  # whether it is frozen is not known: the caller may have been cancelled
                self._channel.open(frames.FREEZE, {"frozen": False}, b"", PendingCall(0))
            raise
        if not frozen:
            self._flows.set()

    async def _flow(self, kind: int) -> None:
        """Wait until a request of this kind may be sent."""
        await self._here.wait()
        while kind in _CHANGES and not self._flows.is_set() and self._channel.alive:
            if self.state == "paused":
                raise UserError(f"{self.id} is paused; resume it first")
            await self._flows.wait()
            await self._here.wait()

    async def _call(
        self,
        kind: int,
        head: dict[str, Any],
        blob: bytes = b"",
        *,
        limit_bytes: int = 0,
        patience_s: float = _FILE_PATIENCE_S,
    ) -> frames.Frame:
        await self._flow(kind)
        return await self._channel.call(kind, head, blob, limit_bytes=limit_bytes, patience_s=patience_s)

    def _parsed(self, parse: Callable[[frames.Frame], Answer], frame: frames.Frame) -> Answer:
        """What an answer says. A runner that answers nonsense is none of ours any more."""
        try:
            return parse(frame)
        except frames.FrameError as error:
            raise self._broken(str(error)) from None

    def _broken(self, what: str) -> SandboxDied:
        died = SandboxDied(f"{self.id}: its runner broke the protocol: {what}")
        self._channel.fail(died)
        return died
