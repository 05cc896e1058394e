"""One command on this machine, with the manners of a sandbox' command: bounded output, a time limit, no child left after it.

Completion is the first process' death, not the end of its pipes: a background child that keeps stdout delays the answer by
`_DRAIN_S` at most, and lives on: `Background` drains its pipes, and ends it with the session.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass, field

from etude.agent.workspace.scripts import kill_tree
from etude.sandbox.errors import InfraError
from etude.sandbox.inside.leftover import MOST_PIPES, VARIABLE, Leftover
from etude.sandbox.inside.output import Output
from etude.sandbox.spec import ExecResult

_DRAIN_S = 0.2
_CHUNK_BYTES = 65536
# The children of a run are found by this variable, see `scripts/kill_tree.py`.
MARK = "ETUDE_RUN"
# The same for all runs of one session.
SESSION_MARK = "ETUDE_SESSION"
# Between SIGTERM and SIGKILL.
_GRACE_S = 2.0


@dataclass
class _Pipe:
    """One output stream: what was kept of it, and whether it has ended."""

    fd: int
    output: Output
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            data = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            self.output.add(data)
        else:
            self.close(loop)

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.ended.is_set():
            os.close(self.leave(loop))

    def leave(self, loop: asyncio.AbstractEventLoop) -> int:
        """The descriptor, which is somebody else's from now on."""
        loop.remove_reader(self.fd)
        self.ended.set()
        return self.fd


class Background:
    """What the commands of one session leave running."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._pipes: set[Leftover] = set()

    def take(self, fd: int, path: str | None, loop: asyncio.AbstractEventLoop) -> None:
        """Drain a pipe that a child in the background still has open, into the file `path`."""
        if len(self._pipes) >= MOST_PIPES:
            os.close(fd)
            return
        left = Leftover(fd, path)
        self._pipes.add(left)
        loop.add_reader(fd, self._drain, left, loop)

    async def end(self) -> None:
        """End all processes of the session, and let their pipes go. Raises InfraError if one won't die."""
        mark = f"{SESSION_MARK}={self.mark}".encode()
        try:
            if not await asyncio.to_thread(kill_tree.end, mark, _GRACE_S):
                raise InfraError(
                    "a process of the session stays in the kernel; see its state with ps, a dead mount is the usual reason"
                )
        finally:
            for left in list(self._pipes):
                self._close(left, asyncio.get_running_loop())

    def _drain(self, left: Leftover, loop: asyncio.AbstractEventLoop) -> None:
        if not left.drain():
            self._close(left, loop)

    def _close(self, left: Leftover, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(left.fd)
        left.close()
        self._pipes.discard(left)


async def run_process(
    argv: list[str], *, cwd: str, env: dict[str, str], timeout_s: float, stdin: bytes, max_output_bytes: int, background: Background
) -> ExecResult:  # fmt: skip
    """Run to completion. On time-out, and if the caller is cancelled, all its processes are killed; else those that it left are the
    background's."""
    loop = asyncio.get_running_loop()
    mark = uuid.uuid4().hex
    started_s = time.monotonic()
    pipes: list[_Pipe] = []
    marked = {**env, MARK: mark, SESSION_MARK: background.mark}
    try:
        process = _spawn(argv, cwd, marked, stdin, max_output_bytes, pipes)
    except OSError as error:
        return _refused(argv[0], error)
    for pipe in pipes:
        loop.add_reader(pipe.fd, pipe.take, loop)
    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout_s):  # Python 3.11's wait_for may swallow a cancellation
                await _death(process.pid)
        except TimeoutError:
            timed_out = True
            await asyncio.to_thread(_kill, mark, process.pid)
        duration_s = time.monotonic() - started_s
        status = process.wait()
        await asyncio.wait([asyncio.ensure_future(pipe.ended.wait()) for pipe in pipes], timeout=_DRAIN_S)
        for pipe in pipes:
            if not timed_out and not pipe.ended.is_set():
                background.take(pipe.leave(loop), env.get(VARIABLE), loop)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.to_thread(_kill, mark, process.pid))
        process.wait()
        raise
    finally:
        for pipe in pipes:
            pipe.close(loop)
    return _result(pipes, status, timed_out, duration_s)


def _result(pipes: list[_Pipe], status: int, timed_out: bool, duration_s: float) -> ExecResult:
    (out, cut_out), (err, cut_err) = (pipe.output.result() for pipe in pipes)
    number = -status if status < 0 else None
    rc = 128 + number if number is not None else status
    return ExecResult(rc, out, err, cut_out or cut_err, timed_out, False, number, round(duration_s, 6))


def _spawn(
    argv: list[str], cwd: str, env: dict[str, str], stdin: bytes, max_output_bytes: int, pipes: list[_Pipe]
) -> subprocess.Popen[bytes]:
    """Started in a session of its own; `pipes` receives the reading ends of its outputs."""
    writers: list[int] = []
    try:
        for _ in range(2):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            pipes.append(_Pipe(reader, Output(max_output_bytes)))
            writers.append(writer)
        with tempfile.TemporaryFile() if stdin else open(os.devnull, "rb") as source:
            if stdin:
                source.write(stdin)
                source.seek(0)
            return subprocess.Popen(
                argv, cwd=cwd, env=env, stdin=source, stdout=writers[0], stderr=writers[1], start_new_session=True
            )
    except OSError:
        for pipe in pipes:
            os.close(pipe.fd)
        raise
    finally:
        for writer in writers:
            os.close(writer)


async def _death(pid: int) -> None:
    """Return when a child has ended, without taking its status."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    pidfd = os.pidfd_open(pid)
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _kill(mark: str, pid: int) -> None:
    """Raises InfraError if a process won't die."""
    if not kill_tree.end(f"{MARK}={mark}".encode(), 0, pid):
        raise InfraError(
            "a killed command stays in the kernel; see its state with ps, a dead mount is the usual reason"
        )


def _refused(name: str, error: OSError) -> ExecResult:
    """The answer of a command that could not be started, in the words of a shell."""
    if isinstance(error, FileNotFoundError):
        missing = "no such file" if "/" in name else "command not found"
        return ExecResult(127, b"", f"{name}: {missing}\n".encode(errors="surrogateescape"))
    return ExecResult(126, b"", f"{name}: {error.strerror}\n".encode(errors="surrogateescape"))
