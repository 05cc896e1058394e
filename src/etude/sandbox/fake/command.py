"""A running command of a fake sandbox: its input, its output as chunks, and how it ended."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

from etude.sandbox.errors import UserError
from etude.sandbox.fake.files import FakeFiles
from etude.sandbox.spec import ExecResult, OutputChunk, TerminalSize

Program = Callable[["FakeCommand"], Awaitable[int]]  # returns the exit status


class FakeCommand:
    """What a program of the table sees. It is a `Process` too, once it runs as a task."""

    def __init__(self, argv: list[str], env: dict[str, str], files: FakeFiles, stdin: bytes | None) -> None:
        self.argv, self.env, self.files = argv, env, files
        self.size: TerminalSize | None = None
        self.limit_bytes = 1 << 20
        self.ended: ExecResult | None = None
        self.stop: Callable[[int], None] = lambda number: None  # set by the caller that runs it as a task
        self.task: asyncio.Task[ExecResult] | None = None
        self._stdin = [stdin or b""]
        self._closed = asyncio.Event()
        if stdin is not None:
            self._closed.set()
        self._chunks: list[OutputChunk] = []
        self._seq = 0
        self._news = asyncio.Event()

    async def input(self) -> bytes:
        """All of its stdin, when that has ended."""
        await self._closed.wait()
        return b"".join(self._stdin)

    def put(self, data: bytes, stream: Literal["stdout", "stderr"] = "stdout") -> None:
        if data:
            self._chunks.append(OutputChunk(self._seq, "stdout" if self.size else stream, data))
            self._seq += 1
            self._news.set()

    def with_output(self, ended: ExecResult) -> ExecResult:
        """The result, with the output that was not streamed."""
        kept, self._chunks = self._chunks, []
        out, cut_out = _within(b"".join(one.data for one in kept if one.stream == "stdout"), self.limit_bytes)
        err, cut_err = _within(b"".join(one.data for one in kept if one.stream == "stderr"), self.limit_bytes)
        return dataclasses.replace(ended, out=out, err=err, truncated=cut_out or cut_err)

    def end(self) -> None:
        self._closed.set()
        self._news.set()

    async def stream(self) -> AsyncIterator[OutputChunk]:
        task = self._running()
        while True:
            self._news.clear()
            kept, self._chunks = self._chunks, []
            for chunk in kept:
                yield chunk
            if not kept and task.done():
                await task  # raises what ended it, where that was no end of its own
                return
            if not self._chunks and not task.done():
                await self._news.wait()

    async def write(self, data: bytes) -> None:
        if self._closed.is_set() or self._running().done():
            raise UserError("the command has no open stdin")
        self._stdin.append(data)

    async def close_stdin(self) -> None:
        self._closed.set()

    async def resize(self, size: TerminalSize) -> None:
        if self.size is None:
            raise UserError("the command has no terminal")
        self.size = size

    async def signal(self, number: int) -> None:
        self.stop(number)

    async def wait(self) -> ExecResult:
        if self.ended is None:
            self.ended = self.with_output(await asyncio.shield(self._running()))
        return self.ended

    def _running(self) -> asyncio.Task[ExecResult]:
        assert self.task is not None
        return self.task


def _within(data: bytes, limit: int) -> tuple[bytes, bool]:
    """Head and tail, half each, with a note between them, as the wire says."""
    if len(data) <= limit:
        return data, False
    note = b"\n[... %d bytes left out ...]\n" % (len(data) - limit)
    half = max(0, limit - len(note)) // 2
    return (data[:half] + note + data[len(data) - half :])[:limit], True
