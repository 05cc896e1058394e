"""The client's end of a sandbox: frames and descriptors over a socket, an exchange for each stream, on the event loop without threads.

Promise: when the runner dies or breaks the protocol, every pending and later exchange fails with `SandboxDied`; none hangs. Whatever
descriptors a hostile runner sends, none but those asked for is kept.
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
from etude.sandbox.wire.exchange import PendingCall, StreamExchange, closes, error_of_frame

_READ_BYTES = 1 << 18
_SLACK_BYTES = 1 << 16  # a frame's JSON part, in addition to the bytes the caller allowed
_MOST_GRANTS = 8
_ANCILLARY = socket.CMSG_SPACE(4 * _MOST_GRANTS)


class ControlChannel:
    """`pidfd` arrives with HELLO (from the zygote, or a launched runner itself), which completes `hello`; `ready` needs READY too.

    `granted`: descriptors that came with GRANT, by name. They are closed when the sandbox dies: who needs one for longer, or in
    another thread, duplicates it.
    """

    def __init__(self, sock: socket.socket, name: str) -> None:
        self._sock, self._name = sock, name
        self._loop = asyncio.get_running_loop()
        self._exchanges: dict[int, StreamExchange] = {}
        self._splitter = frames.Splitter(self._limit)
        self._descriptors: list[int] = []  # received, and not yet claimed by a frame
        self._out = bytearray()
        self._next = 1
        self._cause: errors.SandboxError | None = None
        self.pidfd = -1
        self._is_ready = False
        self.granted: dict[str, int] = {}
        self.hello: asyncio.Future[None] = self._loop.create_future()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.on_death: Callable[[], None] = lambda: None
        self.on_open: Callable[[], Callable[[], None]] = lambda: (
            lambda: None
        )  # as a stream begins: what to call as it ends
        self._closings: dict[int, Callable[[], None]] = {}
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._readable)

    def require_alive(self) -> None:
        """Raises what every call would."""
        if self._cause is not None:
            raise self._again(self._cause)

    @property
    def alive(self) -> bool:
        return self._cause is None

    def introduce(self, pidfd: int) -> None:
        """Process 1, or its substitute, is known; the channel has its descriptor from now on, and closes it at
        once where it has failed already: then its birth knows what to end."""
        if self._cause is not None:
            os.close(pidfd)
            return
        self.pidfd = pidfd
        self.hello.set_result(None)

    def take_up(self) -> None:
        """The runner at the other end was born over another connection, and neither introduces itself nor says READY again."""
        if self._cause is None:
            self._is_ready = True
            self.ready.set_result(None)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way in either direction."""
        return not self._exchanges and not self._out

    def hear(self, hears: bool) -> None:
        """While it does not, the end of the connection is no death."""
        if self._cause is None and hears:
            self._loop.add_reader(self._sock.fileno(), self._readable)
        elif self._cause is None:
            self._loop.remove_reader(self._sock.fileno())

    def part(self) -> None:
        """Close it without a death: its sandbox goes on over another one."""
        self.on_death = lambda: None
        self.fail(errors.SandboxDied(f"{self._name}: this connection to it was given up for another"))
        os.close(self.pidfd)

    def send(self, data: bytes) -> None:
        if self._cause is not None:
            return  # every waiting caller has its error
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

    def open(self, kind: int, head: dict[str, Any], blob: bytes, exchange: StreamExchange) -> int:
        """Send a request whose answers go to `exchange`; returns its stream."""
        self.require_alive()
        try:
            request = frames.pack(kind, self._next, head, blob)
        except frames.FrameError as error:
            raise errors.UserError(str(error)) from None
        stream = self._next
        self._next += 1
        self._exchanges[stream] = exchange
        self._closings[stream] = self.on_open()
        self.send(request)
        return stream

    async def call(
        self, kind: int, head: dict[str, Any], blob: bytes = b"", *, limit_bytes: int = 0, patience_s: float
    ) -> frames.Frame:
        """Send one request and await its answer; a cancelled RUN is cancelled inside too. Raises what the runner reports."""
        exchange = PendingCall(limit_bytes)
        stream = self.open(kind, head, blob, exchange)
        try:
            return (await self.answer(exchange, patience_s))[0]
        except asyncio.CancelledError:
            if kind == frames.RUN:
                self.send(frames.pack(frames.CANCEL, stream, {}))
            raise

    async def answer(self, exchange: PendingCall, patience_s: float) -> tuple[frames.Frame, list[int]]:
        """What a call gets, within a time after which the runner is given up."""
        timer = self._loop.call_later(patience_s, self._silent, patience_s, exchange.answer)
        try:
            return await exchange.answer
        finally:
            timer.cancel()

    def fail(self, cause: errors.SandboxError) -> None:
        """Close for good; idempotent. The first cause is the one every caller sees."""
        if self._cause is not None:
            return
        self._cause = cause
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        for fd in (*self._descriptors, *self.granted.values()):
            os.close(fd)
        self._descriptors.clear()
        self.granted.clear()
        for exchange in self._exchanges.values():
            exchange.fail(self._again(cause))
        self._exchanges.clear()
        for stage in (self.hello, self.ready):
            if not stage.done():
                stage.set_exception(cause)
                stage.exception()  # seen: a caller that awaits it still gets it
        self.on_death()

    @staticmethod
    def _again(cause: errors.SandboxError) -> errors.SandboxError:
        return type(cause)(*cause.args)  # a fresh one for each caller: tracebacks must not pile up on a shared object

    def give_up(self, patience_s: float) -> None:
        self.fail(errors.SandboxDied(f"{self._name}: no answer within {patience_s:.1f} s; killed"))

    def _silent(self, patience_s: float, answer: asyncio.Future[Any]) -> None:
        if not answer.done():  # else it came in time: it was this loop that was late, and the caller has not run yet
            self.give_up(patience_s)

    def _limit(self, stream: int) -> int:
        if stream == 0:
            return _SLACK_BYTES
        exchange = self._exchanges.get(stream)
        return -1 if exchange is None else exchange.limit_bytes + _SLACK_BYTES

    def _readable(self) -> None:
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(_READ_BYTES, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
            if ancillary:
                self._receive(ancillary)
            if flags & socket.MSG_CTRUNC:
                raise frames.FrameError(f"more than {_MOST_GRANTS} descriptors at once")
            if not data:
                self.fail(errors.SandboxDied(f"{self._name}: its runner died"))
                return
            for frame in self._splitter.feed(data):
                self._dispatch(frame)
                if self._cause is not None:
                    return
            if len(self._descriptors) > _MOST_GRANTS or (self._descriptors and not self._splitter.pending):
                raise frames.FrameError("descriptors came that no frame named")
        except BlockingIOError:
            return
        except frames.FrameError as error:
            self.fail(errors.SandboxDied(f"{self._name}: its runner broke the protocol: {error}"))
        except OSError as error:
            self.fail(errors.SandboxDied(f"{self._name}: its runner died ({error.strerror})"))

    def _receive(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors += array.array("i", data[: len(data) // 4 * 4])

    def _claim(self, count: int) -> list[int]:
        """The descriptors that belong to the frame at hand: they came with its first byte, in the order of the frames."""
        if len(self._descriptors) < count:
            raise frames.FrameError(f"{count} descriptors were named, {len(self._descriptors)} came")
        claimed, self._descriptors = self._descriptors[:count], self._descriptors[count:]
        return claimed

    def _dispatch(self, frame: frames.Frame) -> None:
        if frame.stream == 0:
            self._dispatch_own(frame)
            return
        exchange = self._exchanges[frame.stream]  # the splitter lets no other number through
        if frame.kind not in exchange.expects:
            raise frames.FrameError(f"frame of type {frame.kind} on stream {frame.stream}, which expects others")
        if closes(frame):
            del self._exchanges[frame.stream]
            self._closings.pop(frame.stream)()
        exchange.take(frame, self._claim(exchange.descriptors if frame.kind == frames.OK else 0))

    def _dispatch_own(self, frame: frames.Frame) -> None:
        if frame.kind == frames.ERROR:
            self.fail(error_of_frame(frame))
        elif frame.kind == frames.HELLO and self.pidfd < 0:
            self.introduce(self._claim(1)[0])
        elif frame.kind == frames.GRANT and not self._is_ready:
            self._grant(frame.head.get("names"))
        elif frame.kind == frames.READY and not self._is_ready:
            self._is_ready = True
        else:
            raise frames.FrameError(f"frame of type {frame.kind} came on stream 0 at the wrong time")
        if (
            self._is_ready and self.pidfd >= 0 and not self.ready.done()
        ):  # HELLO is another process', and may come second
            self.ready.set_result(None)

    def _grant(self, names: Any) -> None:
        known = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not known or len({*names, *self.granted}) != len(names) + len(self.granted):
            raise frames.FrameError(f"GRANT names {names!r}; expected a list of new names")
        if len(names) + len(self.granted) > _MOST_GRANTS:
            raise frames.FrameError(f"more than {_MOST_GRANTS} descriptors were granted")
        self.granted.update(zip(names, self._claim(len(names)), strict=True))

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
