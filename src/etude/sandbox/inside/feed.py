"""What is on its way into a command's stdin. Promise: no more than `MOST_BYTES` wait, and the runner never blocks on a pipe."""

from __future__ import annotations

import os

from etude.sandbox.inside import frames
from etude.sandbox.inside.loop import WRITE

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable

    from etude.sandbox.inside.loop import Loop

MOST_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16


class Feed:
    """`fd` becomes its own. `spent` receives how many bytes the command's pipe has taken. `last`: what says "end" where closing does
    not (a terminal)."""

    def __init__(self, loop: Loop, fd: int, spent: Callable[[int], None], last: bytes = b"") -> None:
        self._loop, self._fd, self._spent, self._last = loop, fd, spent, last
        self._waiting = bytearray()
        self._ends = False
        os.set_blocking(fd, False)

    def add(self, data: bytes, eof: bool) -> None:
        """Raises FrameError for more than the client may have sent."""
        if len(self._waiting) + len(data) > MOST_BYTES:
            raise frames.FrameError(f"more than {MOST_BYTES} bytes of stdin that no SPENT has given back")
        if self._fd < 0:
            if data:
                self._spent(len(data))  # its reader is gone
            return
        self._waiting += data
        self._ends = self._ends or eof
        self._push()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._fd = -1
            if self._waiting:
                self._spent(len(self._waiting))
                self._waiting.clear()

    def _push(self) -> None:
        taken = 0
        try:
            while self._waiting:
                with memoryview(self._waiting) as view:
                    count = os.write(self._fd, view[:_PIECE_BYTES])
                del self._waiting[:count]
                taken += count
        except BlockingIOError:
            self._loop.watch(self._fd, WRITE, self._push)
        except OSError:
            self.close()  # the command has closed it
        if taken:
            self._spent(taken)
        if self._fd >= 0 and not self._waiting:
            self._loop.forget(self._fd)
            if self._ends:
                self._end()

    def _end(self) -> None:
        if self._last:
            self._waiting += self._last
            self._last = b""
            self._ends = False
            self._push()  # counted as spent, which only widens the client's window by a byte
        else:
            self.close()
