"""One command that runs inside: its first process, its clock, its end. What becomes of its output is up to its kind (`kept`, `streamed`).

Promise: completion is the leader's death, not the end of its pipes: a background child that keeps stdout delays the answer by
`DRAIN_S` at most, and lives on (`leftover`).
"""

from __future__ import annotations

import errno
import functools
import os
import time

from etude.sandbox.inside import leftover
from etude.sandbox.inside.loop import READ

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable
    from typing import Any

    from etude.sandbox.inside.loop import Loop

DRAIN_S = 0.2
PIPE_BYTES = 65536  # a pipe's capacity
NEVER_S = float("inf")


class Job:
    """`supervised`: a subreaper is between it and PID 1. `elders`: processes that were there before an unsupervised one."""

    def __init__(self, stream: int, request: dict[str, Any], stdin: bytes, loop: Loop) -> None:
        self.stream, self.request, self.stdin, self.loop = stream, request, stdin, loop
        self.supervised = False
        self.elders: set[int] = set()
        self.started_s = time.monotonic()
        timeout_s = request["timeout_s"]
        self.deadline_s = NEVER_S if timeout_s is None else self.started_s + float(timeout_s)
        self.pid = 0
        self.status: int | None = None
        self.ended_s = self.cpu_s = 0.0
        self.max_rss_kib = 0
        self.timed_out = self.oom = False
        self.note = b""  # why the runner killed it, for stderr
        self.open: dict[int, int] = {}  # our end of each pipe -> 1 or 2, stdout or stderr
        self.child_ends: list[int] = []  # stdin, stdout, stderr
        self.first_steps: list[Callable[[], None]] = []  # what its first process does before it is the command

    def prepare(self) -> None:
        """Open its streams. Raises OSError or Refused; `abandon` is called then."""
        raise NotImplementedError

    def begin(self) -> None:
        """It runs: listen to it."""
        raise NotImplementedError

    def settle(self) -> bool:
        """It is over: take what the pipes still hold and close them. False: somebody must first make room for that."""
        raise NotImplementedError

    def answer(self) -> bytes:
        """The frame that ends its stream."""
        raise NotImplementedError

    def refusal(self, code: int, message: bytes) -> bytes:
        """The same for a command that could not be started, in the words of a shell."""
        raise NotImplementedError

    def open_outputs(self, stdin: int) -> None:
        self.child_ends.append(stdin)
        for number in (1, 2):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self.open[reader] = number
            self.child_ends.append(writer)

    def close_child_ends(self) -> None:
        for fd in set(self.child_ends):
            os.close(fd)
        self.child_ends.clear()

    def close(self, fd: int) -> None:
        self.loop.forget(fd)
        os.close(fd)
        del self.open[fd]

    def close_all(self) -> None:
        for fd in list(self.open):
            self.close(fd)

    def leave(self) -> None:
        """What is still open is a child's in the background: drained from now on, whatever becomes of this job."""
        for fd in list(self.open):
            self.loop.forget(fd)
            del self.open[fd]
            if len(_leftovers) >= leftover.MOST_PIPES:
                os.close(fd)
                continue
            left = leftover.Leftover(fd, self.request["left"])
            _leftovers.add(left)
            self.loop.watch(fd, READ, functools.partial(_drain, left, self.loop))

    def abandon(self) -> None:
        """It never ran."""
        self.close_child_ends()
        self.close_all()

    def ended(self, status: int, usage: resource.struct_rusage) -> None:
        self.status = status
        self.ended_s = time.monotonic()
        self.cpu_s, self.max_rss_kib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss

    def finished(self, now_s: float) -> bool:
        return self.status is not None and (not self.open or now_s >= self.ended_s + DRAIN_S)

    def wakes_s(self) -> float:
        """When this job next needs attention without an event."""
        return self.deadline_s if self.status is None else self.ended_s + DRAIN_S

    def end(self) -> dict[str, Any]:
        """How it ended, but for its output."""
        assert self.status is not None
        number = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None
        return {
            "rc": 128 + number if number is not None else os.WEXITSTATUS(self.status),
            "signal": number,
            "timed_out": self.timed_out,
            "oom": self.oom,
            "duration_s": round(self.ended_s - self.started_s, 6),
            "cpu_s": round(self.cpu_s, 6),
            "max_rss_kib": self.max_rss_kib,
        }


_leftovers: set[leftover.Leftover] = set()


def _drain(left: leftover.Leftover, loop: Loop) -> None:
    if not left.drain():
        loop.forget(left.fd)
        left.close()
        _leftovers.discard(left)


NOT_STARTED = {"signal": None, "timed_out": False, "oom": False, "duration_s": 0.0, "cpu_s": 0.0, "max_rss_kib": 0}


def read(fd: int, most: int = PIPE_BYTES) -> bytes | None:
    """What a pipe or terminal holds; empty at its end, None where nothing is there yet."""
    try:
        return os.read(fd, most)
    except BlockingIOError:
        return None
    except OSError:
        return b""  # a terminal whose last user is gone


def given(data: bytes, folder: str) -> int:
    """A stdin that is there before the command starts: in a pipe if it fits, else in a nameless file, so nothing has to be pumped."""
    if not data:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    if len(data) <= PIPE_BYTES:
        reader, writer = os.pipe()
        os.write(writer, data)
        os.close(writer)
        return reader
    fd = _nameless(folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


def _nameless(folder: str) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # gVisor's file systems have no such files
            raise
    path = f"{folder}/.etude-{os.urandom(8).hex()}"
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return fd
