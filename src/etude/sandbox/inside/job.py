"""One command inside: its processes' start (exec, or a warm fork without exec), its bounded output, its end.

Promise: completion is the leader's death, not the end of its pipes: a background child that keeps stdout delays the answer by
`DRAIN_S` at most. Memory for output is bounded by what the caller asked for, whatever is written.
"""

from __future__ import annotations

import collections
import os
import resource
import signal
import time
from typing import Any

from etude.sandbox.inside import frames
from etude.sandbox.inside import syscalls as sys_

DRAIN_S = 0.2
_CHUNK_BYTES = 65536  # a pipe's capacity
_JOB_FILES = 1024  # the usual default; the runner's own limit is higher
_ADDRESS_SPACE = 4  # address space per memory: reserving is free, but shared mappings must stay bounded between two watches
_ALWAYS = {
    "PATH": "/opt/etude/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # as in the zygote: a warm run and a cold one iterate sets alike, today and tomorrow
    "PYTHONDONTWRITEBYTECODE": "1",  # exports hold what was written, not caches
}


class Output:
    """Head and tail of a stream, at most `limit` bytes in all with the note of what was left out."""

    _NOTE_BYTES = 48

    def __init__(self, limit: int) -> None:
        room = max(limit - self._NOTE_BYTES, 0)
        self._limit = limit
        self._head_room = room - room // 2
        self._tail_room = room // 2
        self._head = bytearray()
        self._tail: collections.deque[bytes] = collections.deque()
        self._tail_bytes = 0
        self._left_out = 0

    def add(self, data: bytes) -> None:
        room = self._limit - len(self._head) if not self._tail else 0
        self._head += data[: max(room, 0)]
        if rest := data[max(room, 0) :]:
            if not self._tail and len(self._head) > self._head_room:  # first overflow: the head gives its second half back
                rest = bytes(self._head[self._head_room :]) + rest
                del self._head[self._head_room :]
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= self._tail_room and len(self._tail) > 1:
                dropped = self._tail.popleft()
                self._tail_bytes -= len(dropped)
                self._left_out += len(dropped)

    def result(self) -> tuple[bytes, bool]:
        """(bytes kept, whether something was left out)."""
        if not self._tail:
            return bytes(self._head), False
        tail = b"".join(self._tail)
        left_out = self._left_out + max(len(tail) - self._tail_room, 0)
        kept = tail[len(tail) - self._tail_room :] if self._tail_room else b""
        note = b"\n[... %d bytes left out ...]\n" % left_out
        return (bytes(self._head) + note + kept)[: self._limit], True


class Job:
    """A command that runs. `supervised`: a subreaper stands between it and PID 1, so that its orphans stay attributable."""

    def __init__(self, stream: int, request: dict[str, Any], stdin: bytes, supervised: bool) -> None:
        self.stream, self.request, self.supervised = stream, request, supervised
        self.started_s = time.monotonic()
        self.deadline_s = self.started_s + float(request["timeout_s"])
        self.pid = 0
        self.status: int | None = None
        self.ended_s = 0.0
        self.timed_out = self.oom = self.cancelled = False
        limit = int(request["max_output_bytes"])
        self.outputs: dict[int, Output] = {}
        self.open: set[int] = set()
        self._stdin = _stdin(stdin)
        self._writers: list[int] = []
        for _ in range(2):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self.outputs[reader] = Output(limit)
            self.open.add(reader)
            self._writers.append(writer)

    def become_leader(self) -> None:
        """In the child: session, standard streams, limits, folder. The control socket closes at exec or in `close_all`."""
        os.setsid()
        os.dup2(self._stdin, 0)
        os.dup2(self._writers[0], 1)
        os.dup2(self._writers[1], 2)
        for name in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(name, signal.SIG_DFL)
        memory = self.request["memory_mb"] << 20
        for limit, value in (
            (resource.RLIMIT_DATA, memory),
            (resource.RLIMIT_AS, memory * _ADDRESS_SPACE),
            (resource.RLIMIT_FSIZE, self.request["disk_mb"] << 20),
            (resource.RLIMIT_CPU, int(self.request["timeout_s"]) + 2),
            (resource.RLIMIT_NOFILE, _JOB_FILES),
        ):
            resource.setrlimit(limit, (value, value))
        try:
            os.chdir(self.request["cwd"])
        except OSError as error:
            give_up(126, f"cwd {self.request['cwd']}: {error.strerror}")

    def environment(self) -> dict[str, str]:
        return {**_ALWAYS, **self.request["env"]}

    def execute(self) -> None:
        """Replace this process by the command; 127 or 126 with a line on stderr if that fails, as a shell would."""
        argv, environment = self.request["argv"], self.environment()
        try:
            os.execvpe(argv[0], argv, environment)
        except FileNotFoundError:
            give_up(127, f"{argv[0]}: command not found")
        except (OSError, ValueError) as error:
            give_up(126, f"{argv[0]}: {error}")

    def started(self, pid: int) -> None:
        self.pid = pid
        self.close_child_ends()

    def close_child_ends(self) -> None:
        for fd in (self._stdin, *self._writers):
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

    def finished(self, now_s: float) -> bool:
        return self.status is not None and (not self.open or now_s >= self.ended_s + DRAIN_S)

    def wakes_s(self) -> float:
        """When this job next needs attention without an event."""
        if self.status is not None:
            return self.ended_s + DRAIN_S
        return self.deadline_s

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
        }
        return frames.pack(frames.OK, self.stream, head, out + err)


def supervise(leader: int) -> None:
    """In the subreaper: wait for the leader among all orphans, then end as it ended."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == leader:
            break
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def prepare_supervisor() -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    close_all(keep=())


def close_all(keep: tuple[int, ...]) -> None:
    low = max((2, *keep)) + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def give_up(code: int, message: str) -> None:
    os.write(2, f"{message}\n".encode(errors="surrogateescape"))
    os._exit(code)


def _stdin(data: bytes) -> int:
    """Input as a file in memory: nothing has to be pumped, and a command that ignores it costs nothing."""
    if not data:
        return os.open("/dev/null", os.O_RDONLY)
    fd = os.memfd_create("stdin")
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def is_warm(request: dict[str, Any]) -> bool:
    """Whether the sandbox's own interpreter can serve this command; with interpreter options an exec is more honest."""
    argv = request["argv"]
    if not request["warm"] or os.path.basename(argv[0]) not in ("python", "python3") or len(argv) < 2:
        return False
    return argv[1] in ("-c", "-m") and len(argv) > 2 or not argv[1].startswith("-")

