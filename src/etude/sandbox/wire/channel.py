"""The client's end of a sandbox: frames over a socket, one pending call per stream, on the event loop without threads.

Promise: when the runner dies or breaks the protocol, every pending and later call fails with `SandboxDied`; none hangs.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from etude.sandbox import errors
from etude.sandbox.inside import frames

_READ_BYTES = 1 << 18
_SLACK_BYTES = 1 << 16  # a frame's JSON part beside the bytes the caller allowed
_ANCILLARY = socket.CMSG_SPACE(4)
# Only these names may come from the far side; anything else is an InfraError.
_ERRORS: dict[str, type[errors.SandboxError]] = {
    kind.__name__: kind
    for kind in (
        errors.UserError, errors.PidsExhausted, errors.DiskFull, errors.OutputLimit, errors.OOMKilled,
        errors.CapacityExhausted, errors.Unsupported,
    )
}  # fmt: skip


class Channel:
    """`pidfd` arrives with HELLO (from the zygote, or a launched runner itself), which completes `hello`; `ready` needs READY too."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        self._sock, self._name = sock, name
        self._loop = asyncio.get_running_loop()
        self._limits: dict[int, int] = {0: _SLACK_BYTES}
        self._pending: dict[int, asyncio.Future[frames.Frame]] = {}
        self._splitter = frames.Splitter(lambda stream: self._limits.get(stream, -1))
        self._out = bytearray()
        self._next = 1
        self._cause: errors.SandboxError | None = None
        self.pidfd = -1
        self._is_ready = False
        self.hello: asyncio.Future[None] = self._loop.create_future()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.on_death: Callable[[], None] = lambda: None
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def alive(self) -> bool:
        return self._cause is None

    def send(self, data: bytes) -> None:
        if self._out:
            self._out += data
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.fail(errors.SandboxDied(f"{self._name}: its runner is gone ({error.strerror})"))
            return
        if sent < len(data):
            self._out += memoryview(data)[sent:]
            self._loop.add_writer(self._sock.fileno(), self._writable)

    async def call(
        self, kind: int, head: dict[str, Any], blob: bytes = b"", *, limit_bytes: int = 0, patience_s: float
    ) -> frames.Frame:
        """Send one request and await its answer; a cancelled call is cancelled inside too. Raises what the runner reports."""
        if self._cause is not None:
            raise self._again(self._cause)
        stream = self._next
        self._next += 1
        try:
            request = frames.pack(kind, stream, head, blob)
        except frames.FrameError as error:
            raise errors.UserError(str(error)) from None
        future: asyncio.Future[frames.Frame] = self._loop.create_future()
        self._pending[stream] = future
        self._limits[stream] = limit_bytes + _SLACK_BYTES
        timer = self._loop.call_later(patience_s, self._silent, patience_s, future)
        try:
            self.send(request)
            frame = await future
        except asyncio.CancelledError:
            if self._cause is None and kind == frames.RUN:
                self.send(frames.pack(frames.CANCEL, stream, {}))
            raise
        finally:
            timer.cancel()
            del self._pending[stream]
        if frame.kind == frames.ERROR:
            raise self._error(frame)
        return frame

    def fail(self, cause: errors.SandboxError) -> None:
        """Close for good; idempotent. The first cause is the one every caller sees."""
        if self._cause is not None:
            return
        self._cause = cause
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._again(cause))
        for stage in (self.hello, self.ready):
            if not stage.done():
                stage.set_exception(cause)
                stage.exception()  # seen: whoever awaits it still gets it
        self.on_death()

    @staticmethod
    def _again(cause: errors.SandboxError) -> errors.SandboxError:
        return type(cause)(*cause.args)  # a fresh one for each caller: tracebacks must not pile up on a shared object

    def _silent(self, patience_s: float, future: asyncio.Future[frames.Frame]) -> None:
        if future.done():
            return  # it had answered in time: it was this loop that was late, and the caller has not run yet
        self.fail(errors.SandboxDied(f"{self._name}: no answer within {patience_s:.1f} s; killed"))

    def _error(self, frame: frames.Frame) -> errors.SandboxError:
        kind = _ERRORS.get(str(frame.head.get("error")), errors.InfraError)
        return kind(str(frame.head.get("message", "no message")))

    def _readable(self) -> None:
        try:
            if self.pidfd < 0:
                data, ancillary, _, _ = self._sock.recvmsg(_READ_BYTES, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
                self._take_pidfd(ancillary)
            else:
                data = self._sock.recv(_READ_BYTES)
            if not data:
                self.fail(errors.SandboxDied(f"{self._name}: its runner died"))
                return
            for frame in self._splitter.feed(data):
                self._dispatch(frame)
        except BlockingIOError:
            return
        except frames.FrameError as error:
            self.fail(errors.SandboxDied(f"{self._name}: its runner broke the protocol: {error}"))
        except OSError as error:
            self.fail(errors.SandboxDied(f"{self._name}: its runner died ({error.strerror})"))

    def _take_pidfd(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors = array.array("i", data[: len(data) // 4 * 4])
                for fd in descriptors[1:]:
                    os.close(fd)
                self.pidfd = descriptors[0]
                if not self.hello.done():
                    self.hello.set_result(None)

    def _dispatch(self, frame: frames.Frame) -> None:
        if frame.stream == 0:
            if frame.kind == frames.ERROR:
                self.fail(self._error(frame))
            elif frame.kind == frames.READY:
                self._is_ready = True
            if self._is_ready and self.pidfd >= 0 and not self.ready.done():
                self.ready.set_result(None)
            return
        del self._limits[frame.stream]  # one answer a request, also to a cancelled one
        future = self._pending.get(frame.stream)
        if future is not None and not future.done():
            future.set_result(frame)

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._out)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(errors.SandboxDied(f"{self._name}: its runner is gone ({error.strerror})"))
            return
        del self._out[:sent]
        if not self._out:
            self._loop.remove_writer(self._sock.fileno())
