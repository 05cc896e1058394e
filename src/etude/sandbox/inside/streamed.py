"""A command whose output goes out as it comes, and whose input may come while it runs (EXEC), with or without a terminal.

Promise: nothing is read from it that the client has given no credit for, so only a command whose reader is slow waits.
"""

from __future__ import annotations

import fcntl
import functools
import os
import struct

from etude.sandbox.inside import files, frames, job, terminal
from etude.sandbox.inside.feed import Feed
from etude.sandbox.inside.loop import READ

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from etude.sandbox.inside.loop import Loop

_FIONREAD = 0x541B


class StreamedJob(job.Job):
    def __init__(
        self, stream: int, request: dict[str, Any], stdin: bytes, loop: Loop, send: Callable[[bytes], None]
    ) -> None:
        super().__init__(stream, request, stdin, loop)
        self._send = send
        self._credit = int(request["credit"])
        self._sequence = 0
        self._terminal = -1
        self._feed: Feed | None = None
        self._starved = False  # it is over, and what its pipes hold waits for credit

    def prepare(self) -> None:
        if self.request["tty"] is not None:
            self._open_terminal(*self.request["tty"])
        elif self.request["open_stdin"]:
            reader, writer = os.pipe()
            self._feed = Feed(self.loop, writer, self._spent)
            self.open_outputs(reader)
            self._feed.add(self.stdin, False)
        else:
            self.open_outputs(job.given(self.stdin, self.request["tmp"]))

    def _open_terminal(self, rows: int, columns: int) -> None:
        try:
            self._terminal, theirs = terminal.open_pair(rows, columns)
        except OSError as error:
            raise files.FileRequestError(
                "Unsupported", f"tty: this sandbox has no terminals ({error.strerror})"
            ) from None
        self.open[self._terminal] = 1
        self.child_ends += [theirs] * 3
        self.first_steps.append(functools.partial(terminal.lead, theirs))
        self._feed = Feed(self.loop, os.dup(self._terminal), self._spent, terminal.END)
        self._feed.add(self.stdin, not self.request["open_stdin"])

    def begin(self) -> None:
        if self._credit > 0:
            for fd in self.open:
                self.loop.watch(fd, READ, lambda fd=fd: self._drain(fd))

    def credit(self, count: int) -> None:
        self._credit += count
        self._starved = False
        self.begin()

    def feed(self, data: bytes, eof: bool) -> None:
        """Raises FrameError where stdin was not asked to stay open."""
        if self._feed is None or not self.request["open_stdin"]:
            raise frames.FrameError("STDIN for a command whose stdin was given with it")
        self._feed.add(data, eof)

    def resize(self, rows: int, columns: int) -> None:
        if self._terminal in self.open:
            terminal.resize(self._terminal, rows, columns)

    def finished(self, now_s: float) -> bool:
        return not self._starved and super().finished(now_s)

    def wakes_s(self) -> float:
        return job.NEVER_S if self._starved else super().wakes_s()

    def settle(self) -> bool:
        for fd in list(self.open):
            self._drain(fd)
        self._starved = self._credit <= 0 and any(map(_held, self.open))
        if self._starved:
            return False
        if note := self.note[: max(self._credit, 0)]:
            self._emit(2, note)
        if self._terminal < 0:
            self.leave()
        self.close_all()
        return True

    def close_all(self) -> None:
        if self._feed is not None:
            self._feed.close()
        super().close_all()

    def answer(self) -> bytes:
        return frames.pack(frames.EXIT, self.stream, {**self.end(), "truncated": False})

    def refusal(self, code: int, message: bytes) -> bytes:
        output = frames.pack(frames.OUTPUT, self.stream, {"fd": 2, "seq": 0}, message[: max(self._credit, 0)])
        return output + frames.pack(frames.EXIT, self.stream, {**job.NOT_STARTED, "rc": code, "truncated": False})

    def _drain(self, fd: int) -> None:
        if self._credit <= 0:
            return
        data = job.read(fd, min(job.PIPE_BYTES, self._credit))
        if data:
            self._credit -= len(data)
            self._emit(self.open[fd], data)
            if self._credit <= 0:
                for one in self.open:
                    self.loop.forget(one)
        elif data is not None:
            self.close(fd)

    def _emit(self, number: int, data: bytes) -> None:
        self._send(frames.pack(frames.OUTPUT, self.stream, {"fd": number, "seq": self._sequence}, data))
        self._sequence += 1

    def _spent(self, count: int) -> None:
        self._send(frames.pack(frames.SPENT, self.stream, {"bytes": count}))


def _held(fd: int) -> bool:
    """Whether a pipe or terminal holds something to read."""
    return struct.unpack("i", fcntl.ioctl(fd, _FIONREAD, b"\0" * 4))[0] > 0
