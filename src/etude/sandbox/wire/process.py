"""A running command, seen from outside: its output as it comes, its input, its end.

Promise: no more than `WINDOW_BYTES` of output wait here and inside for a reader; then the command blocks, and nothing else does.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable
from typing import Any

from etude.sandbox.errors import SandboxError, UserError
from etude.sandbox.inside import frames
from etude.sandbox.inside.output import Output
from etude.sandbox.spec import ExecResult, OutputChunk, TerminalSize
from etude.sandbox.wire import request
from etude.sandbox.wire.channel import ControlChannel
from etude.sandbox.wire.exchange import error_of_frame

GRACE_S = 10.0  # the runner kills at the time-out; this long after it we stop believing in the runner
WINDOW_BYTES = 1 << 20
_GIVE_BACK_BYTES = WINDOW_BYTES // 4  # taken before it is acknowledged: one small frame for many large ones
_STDIN_BYTES = 1 << 20  # that a runner holds for a command
_PIECE_BYTES = 1 << 16
_STREAMS = {1: "stdout", 2: "stderr"}
_MOST_SIGNAL = 64


class LiveProcess:
    """See `protocol.Process`. What a command can't be started for (a user, a terminal, no process left) is raised by the first call that
    waits for it. `judge` adds what only the sandbox knows to the result."""

    limit_bytes = WINDOW_BYTES
    expects = frozenset((frames.OUTPUT, frames.SPENT, frames.EXIT, frames.ERROR))
    descriptors = 0

    def __init__(
        self, channel: ControlChannel, head: dict[str, Any], stdin: bytes | None, tty: TerminalSize | None, judge: Callable[[ExecResult], ExecResult]
    ) -> None:  # fmt: skip
        self._channel, self._judge = channel, judge
        self._kept = {name: Output(int(head["max_output_bytes"])) for name in ("stdout", "stderr")}
        self._chunks: collections.deque[OutputChunk] = collections.deque()
        self._credit, self._owed, self._sequence = WINDOW_BYTES, 0, 0
        self._room = _STDIN_BYTES
        self._is_open = stdin is None
        self._streaming = self._streamed = False
        self._exit: dict[str, Any] | None = None
        self._failure: SandboxError | None = None
        self._result: ExecResult | None = None
        self._news = asyncio.Event()
        timeout_s = head["timeout_s"]
        self._deadline_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        size = None if tty is None else [*_size(tty).values()]
        more = {"open_stdin": stdin is None, "tty": size, "credit": WINDOW_BYTES}
        self._stream = channel.open(frames.EXEC, {**head, **more}, stdin or b"", self)

    async def stream(self) -> AsyncIterator[OutputChunk]:
        if self._streamed:
            raise UserError("the output of a process can be streamed once")
        self._streaming = self._streamed = True
        try:
            while (chunk := await self._next()) is not None:
                yield chunk
        finally:
            self._streaming = False
            self._news.set()

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            await self._until(lambda: self._room > 0 or self._over or not self._is_open)
            self._require_stdin()
            piece = view[: min(self._room, _PIECE_BYTES)]
            self._room -= len(piece)
            self._send(frames.STDIN, {"eof": False}, bytes(piece))
            view = view[len(piece) :]
        self._require_stdin()

    async def close_stdin(self) -> None:
        if self._is_open and not self._over:
            self._send(frames.STDIN, {"eof": True})
        self._is_open = False
        self._news.set()

    async def resize(self, size: TerminalSize) -> None:
        self._send(frames.RESIZE, _size(size))

    async def signal(self, number: int) -> None:
        if not 0 < number <= _MOST_SIGNAL:
            raise UserError(f"there is no signal {number}")
        self._send(frames.SIGNAL, {"number": number})

    async def wait(self) -> ExecResult:
        """As the interface says. While another task streams, the output is that task's; a stream that was left behind unfinished must
        be closed (`aclose`) or dropped before this can go on with the rest."""
        await self._until(lambda: not self._streaming)
        while (chunk := await self._next()) is not None:
            self._kept[chunk.stream].add(chunk.data)
        if self._result is None:
            assert self._exit is not None
            (out, cut_out), (err, cut_err) = (kept.result() for kept in self._kept.values())
            self._result = self._judge(request.result(self._exit, out, err, truncated=cut_out or cut_err))
        return self._result

    def take(self, frame: frames.Frame, descriptors: list[int]) -> None:
        if frame.kind == frames.OUTPUT:
            self._take_output(frame)
        elif frame.kind == frames.SPENT:
            self._room = min(self._room + _count(frame.head.get("bytes")), _STDIN_BYTES)
        elif frame.kind == frames.ERROR:
            self._failure = error_of_frame(frame)
        else:
            request.result(frame.head, b"", b"")  # read once here, where nonsense ends the connection
            self._exit = frame.head
        self._news.set()

    def fail(self, cause: SandboxError) -> None:
        if not self._over:
            self._failure = cause
            self._news.set()

    def _take_output(self, frame: frames.Frame) -> None:
        stream = _STREAMS.get(frame.head.get("fd", 0))
        self._credit -= len(frame.blob)
        if stream is None or frame.head.get("seq") != self._sequence or self._credit < 0 or not frame.blob:
            raise frames.FrameError(f"output {frame.head} of {len(frame.blob)} bytes, credit {self._credit}")
        self._chunks.append(OutputChunk(self._sequence, "stdout" if stream == "stdout" else "stderr", frame.blob))
        self._sequence += 1

    async def _next(self) -> OutputChunk | None:
        """The oldest output that was not taken yet; None at its end."""
        if not self._chunks and not self._over:
            timer = self._watchdog()
            try:
                await self._until(lambda: bool(self._chunks) or self._over)
            finally:
                timer.cancel()
        if not self._chunks:
            if self._failure is not None:
                raise type(self._failure)(*self._failure.args)
            return None
        chunk = self._chunks.popleft()
        self._owed += len(chunk.data)
        if self._owed >= _GIVE_BACK_BYTES and not self._over:
            self._credit += self._owed
            self._send(frames.CREDIT, {"bytes": self._owed})
            self._owed = 0
        return chunk

    def _watchdog(self) -> asyncio.TimerHandle:
        """Nothing waits here, so the runner has credit: its answer must come soon after the time-out, or it is given up."""
        loop = asyncio.get_running_loop()
        if self._deadline_s is None:
            return loop.call_later(0, lambda: None)
        patience_s = max(self._deadline_s - loop.time(), 0.0) + GRACE_S
        return loop.call_later(patience_s, lambda: self._over or self._channel.give_up(patience_s))

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self._news.clear()
            await self._news.wait()

    @property
    def _over(self) -> bool:
        return self._exit is not None or self._failure is not None

    def _require_stdin(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        if not self._is_open or self._over:
            raise UserError(
                "this process has ended" if self._over else "its stdin is closed; give exec stdin=None to keep it open"
            )

    def _send(self, kind: int, head: dict[str, Any], blob: bytes = b"") -> None:
        if not self._over:
            self._channel.send(frames.pack(kind, self._stream, head, blob))


def _size(asked: TerminalSize) -> dict[str, int]:
    return {name: request.whole(name, getattr(asked, name), 0, 0xFFFF) for name in ("rows", "columns")}


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise frames.FrameError(f"{value!r} bytes were spent")
    return value
