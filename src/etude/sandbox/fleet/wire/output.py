"""A command's output on its way over a wire: read ahead up to a bound, handed over in batches; beyond the bound the command blocks."""

from __future__ import annotations

import asyncio

from etude.sandbox.errors import SandboxError
from etude.sandbox.protocol import Process
from etude.sandbox.spec import Chunk

AHEAD_BYTES = 4 << 20
BATCH_BYTES = 1 << 20
_IDLE_S = 20.0  # then an empty batch: a request that is open for ever can't be told from a lost one


class Output:
    """Reads nothing before the first pull, so that `wait` alone still gets it all."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._chunks: list[Chunk] = []
        self._held_bytes = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._error: SandboxError | None = None
        self._reader: asyncio.Task[None] | None = None

    async def pull(self) -> tuple[list[Chunk], bool]:
        """What has come since, BATCH_BYTES and at most one chunk more; true with the last of it."""
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(_IDLE_S):
                await self._news.wait()
        except TimeoutError:
            return [], False
        batch: list[Chunk] = []
        size = count = 0
        for chunk in self._chunks:
            if size >= BATCH_BYTES:
                break
            batch.append(chunk)
            size += len(chunk.data)
            count += 1
        del self._chunks[:count]
        self._held_bytes -= size
        self._room.set()
        ended = self._reader.done() and not self._chunks
        if ended and not batch and self._error is not None:
            raise self._error
        if not self._chunks and not self._reader.done():
            self._news.clear()
        return batch, ended and self._error is None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        try:
            async for chunk in self._process.stream():
                self._chunks.append(chunk)
                self._held_bytes += len(chunk.data)
                self._news.set()
                while self._held_bytes >= AHEAD_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except SandboxError as error:
            self._error = error
        finally:
            asyncio.get_running_loop().call_soon(self._news.set)  # when this task is seen to be done
