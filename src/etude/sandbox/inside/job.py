"""One command that runs inside: its pipes, its clock, its answer.

Promise: completion is the leader's death, not the end of its pipes: a background child that keeps stdout delays the answer by
`DRAIN_S` at most.
"""

from __future__ import annotations

import os
import time

from etude.sandbox.inside import frames
from etude.sandbox.inside.output import Output

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    import resource
    from typing import Any

DRAIN_S = 0.2
_CHUNK_BYTES = 65536  # a pipe's capacity


class Job:
    """`supervised`: a subreaper stands between it and PID 1. `elders`: processes that were there before an unsupervised one."""

    def __init__(self, stream: int, request: dict[str, Any], stdin: bytes, supervised: bool, elders: set[int]) -> None:
        self.stream, self.request, self.supervised, self.elders = stream, request, supervised, elders
        self.started_s = time.monotonic()
        self.deadline_s = self.started_s + float(request["timeout_s"])
        self.pid = 0
        self.status: int | None = None
        self.ended_s = self.cpu_s = 0.0
        self.max_rss_kib = 0
        self.timed_out = self.oom = False
        self.note = b""  # why the runner killed it, for stderr
        limit = int(request["max_output_bytes"])
        self.outputs: dict[int, Output] = {}
        self.open: set[int] = set()
        writers: list[int] = []
        stdin_end = _stdin(stdin, request["tmp"])
        for _ in range(2):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self.outputs[reader] = Output(limit)
            self.open.add(reader)
            writers.append(writer)
        self.child_ends = (stdin_end, writers[0], writers[1])  # stdin, stdout, stderr

    def close_child_ends(self) -> None:
        for fd in self.child_ends:
            os.close(fd)

    def drain(self, fd: int) -> bool:
        """Take what a pipe holds; False at its end."""
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if data:
            self.outputs[fd].add(data)
        return bool(data)

    def ended(self, status: int, usage: resource.struct_rusage) -> None:
        self.status = status
        self.ended_s = time.monotonic()
        self.cpu_s, self.max_rss_kib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss

    def finished(self, now_s: float) -> bool:
        return self.status is not None and (not self.open or now_s >= self.ended_s + DRAIN_S)

    def wakes_s(self) -> float:
        """When this job next needs attention without an event."""
        return self.deadline_s if self.status is None else self.ended_s + DRAIN_S

    def answer(self) -> bytes:
        assert self.status is not None
        number = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None
        (out, cut_out), (err, cut_err) = (output.result() for output in self.outputs.values())
        head = {
            "rc": 128 + number if number is not None else os.WEXITSTATUS(self.status),
            "signal": number,
            "out": len(out),
            "truncated": cut_out or cut_err,
            "timed_out": self.timed_out,
            "oom": self.oom,
            "duration_s": round(self.ended_s - self.started_s, 6),
            "cpu_s": round(self.cpu_s, 6),
            "max_rss_kib": self.max_rss_kib,
        }
        return frames.pack(frames.OK, self.stream, head, out + err + self.note)

    def refusal(self, code: int, message: str) -> bytes:
        """The answer of a command that could not be started, in the words of a shell."""
        err = f"{message}\n".encode(errors="surrogateescape")[: int(self.request["max_output_bytes"])]
        head = {
            "rc": code,
            "signal": None,
            "out": 0,
            "truncated": False,
            "timed_out": False,
            "oom": False,
            "duration_s": 0.0,
            "cpu_s": 0.0,
            "max_rss_kib": 0,
        }
        return frames.pack(frames.OK, self.stream, head, err)


def _stdin(data: bytes, folder: str) -> int:
    """All input is there before the command starts: in a pipe if it fits, else in a nameless file, so nothing has to be pumped."""
    if not data:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    if len(data) <= _CHUNK_BYTES:
        reader, writer = os.pipe()
        os.write(writer, data)
        os.close(writer)
        return reader
    fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd
