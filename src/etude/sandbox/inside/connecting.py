"""Ways from outside to what listens on the sandbox' loopback: connected here, handed out as descriptors."""

from __future__ import annotations

import errno
import os
import struct
import time
from _socket import AF_INET, SCM_RIGHTS, SO_ERROR, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, socket

from etude.sandbox.inside import frames
from etude.sandbox.inside.loop import WRITE

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from etude.sandbox.inside.loop import Loop

_PATIENCE_S = 5.0  # on a loopback it is there at once, unless a listener has let its queue fill up
_MOST_PORT = 65535


class Connecting:
    """Sockets that are on their way, by stream."""

    def __init__(self, control: socket, loop: Loop) -> None:
        self._control, self._loop = control, loop
        self._waiting: dict[int, tuple[socket, int, float]] = {}

    def __contains__(self, stream: int) -> bool:
        return stream in self._waiting

    def open(self, stream: int, port: int) -> None:
        if not 0 < port <= _MOST_PORT:
            self._refuse(stream, "UserError", f"port {port} is none: 1 to {_MOST_PORT}")
            return
        try:
            made = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
        except PermissionError:
            self._refuse(stream, "Unsupported", "connect: nothing inside this sandbox has sockets")
            return
        code = made.connect_ex(("127.0.0.1", port))
        if code == errno.EINPROGRESS:
            self._waiting[stream] = made, port, time.monotonic() + _PATIENCE_S
            self._loop.watch(made.fileno(), WRITE, lambda: self._arrived(stream))
        else:
            self._answer(stream, made, port, code)

    def patience_s(self) -> float | None:
        if not self._waiting:
            return None
        return max(0.0, min(until_s for _, _, until_s in self._waiting.values()) - time.monotonic())

    def check(self) -> None:
        now_s = time.monotonic()
        for stream, (made, port, until_s) in list(self._waiting.items()):
            if now_s >= until_s:
                self._leave(stream, made)
                self._answer(stream, made, port, errno.ETIMEDOUT)

    def _arrived(self, stream: int) -> None:
        made, port, _ = self._waiting[stream]
        self._leave(stream, made)
        self._answer(stream, made, port, made.getsockopt(SOL_SOCKET, SO_ERROR))

    def _leave(self, stream: int, made: socket) -> None:
        self._loop.forget(made.fileno())
        del self._waiting[stream]

    def _answer(self, stream: int, made: socket, port: int, code: int) -> None:
        if code:
            self._refuse(stream, "UserError", f"port {port} of the sandbox: {os.strerror(code)}")
        else:
            rights = (SOL_SOCKET, SCM_RIGHTS, struct.pack("i", made.fileno()))
            try:
                self._control.sendmsg([frames.pack(frames.OK, stream, {})], [rights])
            except OSError as error:
                if error.errno == errno.EINVAL:  # gVisor: its sockets are its own, the control socket is the host's
                    self._refuse(
                        stream, "Unsupported", "connect: this sandbox' kernel hands no socket out; see docs/sandbox.md"
                    )
                elif error.errno == errno.ETOOMANYREFS:
                    self._refuse(stream, "CapacityExhausted", frames.TOO_MANY_ON_THE_WAY)
                else:
                    raise
        made.close()

    def _refuse(self, stream: int, kind: str, message: str) -> None:
        self._control.sendall(frames.pack(frames.ERROR, stream, {"error": kind, "message": message}))
