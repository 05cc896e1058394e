"""An MCP server as a child process: one JSON message a line on its stdin and stdout.

Promise: the connection ends as soon as the server's process has ended. The SDK's own transport waits for the end of stdout, which any
process that the server started may hold open: a call would wait for its whole time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from etude.harness.mcp.server import Server

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

_CHUNK_BYTES = 1 << 16
_LAST_WORDS_S = 0.2  # what a server wrote before it ended is read without a longer pause than this
_GRACE_S = 2.0  # to end by itself once its stdin is closed, then once more after SIGTERM
_log = logging.getLogger("mcp.stdio")  # goes to the server's own log


@contextlib.asynccontextmanager
async def stdio_transport(
    server: Server, folder: Path, errlog: TextIO
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Starts `server`, whose variables are filled in, in `folder`; yields the stream of its messages and the one of messages to it. At the
    end it and all processes of its group end. Raises OSError and ValueError where it can't be started."""
    import anyio
    from mcp.client.stdio import get_default_environment

    process = subprocess.Popen(
        [server.command, *server.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errlog,
        env=get_default_environment() | dict(server.env), cwd=folder / server.cwd, start_new_session=True,
    )  # fmt: skip
    incoming, received = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    outgoing, to_send = anyio.create_memory_object_stream["SessionMessage"](0)
    try:
        child = _Child(process)
    except OSError:
        process.kill()
        process.wait()
        raise
    try:
        await child.connect()
        tasks = [asyncio.create_task(child.read(incoming)), asyncio.create_task(child.write(to_send, incoming))]
        try:
            yield received, outgoing
        finally:
            for stream in (received, outgoing):
                stream.close()
            await child.end()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for stream in (incoming, to_send):
                stream.close()
    finally:
        child.close()


class _Child:
    """The process, its pipes, and the event that it has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)
        self._transports: list[asyncio.BaseTransport] = []

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._ended.set()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._out = asyncio.StreamReader()
        out, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._out), self._process.stdout)
        self._transports.append(out)
        into, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._process.stdin)
        self._transports.append(into)
        self._in = asyncio.StreamWriter(into, protocol, None, loop)

    async def read(self, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Passes messages on until the server has ended. Once the session is gone it reads on, so that no full pipe keeps the server."""
        import anyio

        is_open, rest = True, b""
        async with incoming:
            while chunk := await self._chunk():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines if is_open else ():
                    try:
                        await incoming.send(_message(line))
                    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                        is_open = False
                        break

    async def write(
        self,
        to_send: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async with to_send:
            async for message in to_send:
                row = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    self._in.write(row.encode("utf-8", "replace") + b"\n")
                    await self._in.drain()
                except OSError:  # it reads no more
                    incoming.close()
                    return

    async def end(self) -> None:
        """Close its stdin and wait; then SIGTERM, then SIGKILL to its group, of which nothing may be left either."""
        self._in.close()
        for number in (None, signal.SIGTERM):
            if number is not None:
                self._signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _GRACE_S)
                break
        self._signal(signal.SIGKILL)
        await self._ended.wait()

    def close(self) -> None:
        """Kill what is still there and let go of it."""
        self._signal(signal.SIGKILL)
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._process.wait()
        os.close(self._pidfd)
        for transport in self._transports:
            transport.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and len(self._transports) < 2:
                pipe.close()

    def _signal(self, number: int) -> None:
        """To its group: as long as the process is not waited for, no other group can have this number."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _chunk(self) -> bytes:
        """The next bytes; none at the end of stdout, and none when the process has ended and says no more."""
        reading = asyncio.ensure_future(self._out.read(_CHUNK_BYTES))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((reading, ended), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait((reading,), timeout=_LAST_WORDS_S)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()
            ended.cancel()


def _message(line: bytes) -> SessionMessage | Exception:
    """What a line says; an exception for one that is no message."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode("utf-8", "replace"), by_name=False))
    except ValueError as error:
        _log.exception("A line on stdout is no message")
        return error
