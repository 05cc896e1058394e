"""PID 1 of a sandbox: one loop over the control socket and the commands' pipes.

Promises: EOF on the control socket ends it, and with it every process inside (pid namespace); a time-out kills the command's whole
tree, double forks and new sessions included, and nothing else; a failed fork is `PidsExhausted`, never an empty success.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - `signal` without enum conversions: each fork would copy their pages
import errno
import functools
import os
import select
import time

from etude.sandbox.inside import fault, files, frames, job, start, tree, warm

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import Any

    from etude.sandbox.inside.ground import Ground

    Role = Callable[[], Any]

_WATCH_S = 0.1  # memory is looked at this often while something runs, be it what a command left behind (handbook 2.4)
_DYING_S = 5.0  # a killed process that stays in the kernel for longer makes the sandbox unusable: it ends


def _ignore(number: int, frame: Any) -> None:
    """A handler must exist for the wake-up pipe to be written."""


class Runner:
    def __init__(self, control: socket, store: files.Files, spec: dict[str, Any], place: Ground) -> None:
        self._control, self._files, self._spec, self._place = control, store, spec, place
        self._jobs: dict[int, job.Job] = {}  # by stream
        self._pipes: dict[int, job.Job] = {}  # by read end
        self._splitter = frames.Splitter()
        self._poll = select.epoll()
        self._poll.register(control.fileno(), select.EPOLLIN)
        self._wake, self._wake_writer = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_writer, False)
        _signal.signal(_signal.SIGCHLD, _ignore)
        _signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._poll.register(self._wake, select.EPOLLIN)
        self._next_watch_s = 0.0
        self._left_behind = False  # no command runs, but children of earlier ones do

    def serve(self) -> Role | None:
        """Returns only in a forked child that is to become a warm run: its role, for a clean stack."""
        while True:
            try:
                role = self._turn()
            except Exception as error:  # noqa: BLE001 - whatever it is, the client must hear of it before PID 1 ends
                self._control.sendall(frames.pack(frames.ERROR, 0, fault.explain(error)))
                os._exit(70)
            if role is not None:
                return role

    def _turn(self) -> Role | None:
        for fd, _ in self._poll.poll(self._patience_s()):
            if fd == self._control.fileno():
                role = self._listen()
                if role is not None:
                    return role
            elif fd == self._wake:
                os.read(self._wake, 4096)
                self._reap()
            elif fd in self._pipes:
                owner = self._pipes[fd]
                if not owner.drain(fd):
                    self._close_pipe(owner, fd)
        self._check_jobs()
        return None

    def _patience_s(self) -> float | None:
        if not self._jobs:
            return max(0.0, self._next_watch_s - time.monotonic()) if self._left_behind else None
        wakes_s = min(one.wakes_s() for one in self._jobs.values())
        return max(0.0, min(wakes_s, self._next_watch_s) - time.monotonic())

    def _listen(self) -> Role | None:
        data = self._control.recv(1 << 18)
        if not data:
            os._exit(0)
        for frame in self._splitter.feed(data):
            if frame.kind == frames.RUN:
                role = self._start(frame)
                if role is not None:
                    return role
            elif frame.kind == frames.CANCEL:
                if (one := self._jobs.get(frame.stream)) is not None:
                    self._kill(one)
            else:
                self._control.sendall(self._serve_files(frame))
        return None

    def _serve_files(self, frame: frames.Frame) -> bytes:
        head, store = frame.head, self._files
        try:
            if frame.kind == frames.READ:
                return frames.pack(
                    frames.OK, frame.stream, {}, store.read(head["path"], head["max_bytes"], head["offset"])
                )
            if frame.kind == frames.WRITE:
                store.write(head["path"], frame.blob, head["mode"])
                return frames.pack(frames.OK, frame.stream, {})
            if frame.kind == frames.LIST:
                entries = store.list(head["path"], head["recursive"], head["max_entries"])
                return frames.pack(frames.OK, frame.stream, {"entries": entries})
            if frame.kind == frames.REMOVE:
                store.remove(head["path"])
                return frames.pack(frames.OK, frame.stream, {})
            found = store.export(head["path"], head["max_bytes"])
            sizes = [[name, len(data)] for name, data in found]
            return frames.pack(frames.OK, frame.stream, {"files": sizes}, b"".join(data for _, data in found))
        except (OSError, files.Refused, frames.FrameError) as error:
            explained = fault.explain(error)
            if isinstance(error, OSError):
                explained["message"] = f"{head.get('path')}: {explained['message']}"
            return frames.pack(frames.ERROR, frame.stream, explained)

    def _start(self, frame: frames.Frame) -> Role | None:
        request = {**frame.head, **{key: self._spec[key] for key in ("memory_mb", "disk_mb", "pids")}}
        request["cwd"] = self._place.real(os.path.join(self._spec["workdir"], request["cwd"] or ""))
        request["env"] = {**start.ENVIRONMENT, **self._place.environment, **self._spec["env"], **request["env"]}
        request["tmp"], request["elsewhere"] = self._place.tmp, self._place.elsewhere
        arguments = warm.arguments(request["argv"], request["cwd"], request["env"]) if start.is_warm(request) else ()
        supervised = bool(self._jobs)
        one = job.Job(frame.stream, request, frame.blob, supervised, set() if supervised else tree.living())
        try:
            one.pid = self._supervisor(one) if supervised else self._leader(one)
        except start.CantStart as error:
            self._drop(one, one.refusal(error.code, str(error)))
        except OSError as error:
            kind = "PidsExhausted" if error.errno == errno.EAGAIN else "InfraError"
            message = (
                f"{request['argv'][0]!r} could not be started: {error.strerror} (limit: {self._spec['pids']} processes)"
            )
            self._drop(one, frames.pack(frames.ERROR, frame.stream, {"error": kind, "message": message}))
        else:
            if one.pid == 0:
                return functools.partial(warm.run, request["argv"], *arguments, frame.head["env"])
            self._admit(one)
        return None

    def _leader(self, one: job.Job) -> int:
        """Start the command itself. Returns its pid, or 0 in a forked child that is to become a warm run."""
        if not start.is_warm(one.request):
            return start.spawn(one.request, *one.child_ends, self._place.confine)
        start.enter_folder(one.request["cwd"])
        pid = os.fork()
        if pid == 0:
            try:
                _signal.set_wakeup_fd(-1)
                self._control.detach()  # its number is closed below; the object must not close a reused number later
                start.become_warm(one.request, *one.child_ends, self._place.confine)
            except Exception as error:  # noqa: BLE001 - the stack above is the runner's: nothing may escape into it
                os.write(2, f"{error}\n".encode(errors="surrogateescape"))
                os._exit(125)
        return pid

    def _supervisor(self, one: job.Job) -> int:
        """As `_leader`, under a subreaper; what goes wrong there comes back through a pipe."""
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if pid == 0:
            return self._supervise(one, writer)
        os.close(writer)
        with open(reader, "rb") as file:
            problem = file.read()
        if not problem:
            return pid
        os.waitpid(pid, 0)
        code, _, message = problem.partition(b" ")
        if code == b"errno":
            raise OSError(int(message), os.strerror(int(message)))
        raise start.CantStart(int(code), message.decode(errors="surrogateescape"))

    def _supervise(self, one: job.Job, report: int) -> int:
        """In the supervisor: never returns, except as 0 in the leader's own fork."""
        try:
            start.become_supervisor()
            leader = self._leader(one)
            if leader:
                start.supervise(leader)
            return leader
        except start.CantStart as error:
            os.write(report, f"{error.code} {error}".encode(errors="surrogateescape"))
        except OSError as error:
            os.write(report, f"errno {error.errno}".encode())
        os._exit(1)

    def _admit(self, one: job.Job) -> None:
        one.close_child_ends()
        self._next_watch_s = self._next_watch_s if self._jobs or self._left_behind else one.started_s + _WATCH_S
        self._jobs[one.stream] = one
        for fd in one.open:
            self._pipes[fd] = one
            self._poll.register(fd, select.EPOLLIN)

    def _drop(self, one: job.Job, answer: bytes) -> None:
        """The command never ran."""
        one.close_child_ends()
        for fd in one.open:
            os.close(fd)
        self._control.sendall(answer)

    def _reap(self) -> None:
        by_pid = {one.pid: one for one in self._jobs.values()}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (one := by_pid.get(pid)) is not None:
                one.ended(status, usage)

    def _check_jobs(self) -> None:
        now_s = time.monotonic()
        for one in list(self._jobs.values()):
            if one.status is None and now_s >= one.deadline_s:
                one.timed_out = True
                self._kill(one)
                now_s = time.monotonic()
            if one.finished(now_s):
                self._finish(one)
        self._left_behind = not self._jobs and bool(tree.living())
        if (self._jobs or self._left_behind) and now_s >= self._next_watch_s:
            self._next_watch_s = now_s + _WATCH_S
            self._watch_memory()
            if reason := self._place.excess():
                self._stop_all(reason)

    def _watch_memory(self) -> None:
        hog = tree.memory_hog(self._spec["memory_mb"] << 20)
        if hog is None:
            return
        owner = tree.owner(hog, {one.pid: one for one in self._jobs.values()})
        if owner is None:
            owner = next((one for one in self._jobs.values() if not one.supervised), None)
        if owner is not None:
            owner.oom = True
        tree.kill(hog)

    def _stop_all(self, reason: str) -> None:
        if not self._jobs:
            tree.kill(-1)
        for one in self._jobs.values():
            one.note = f"killed: {reason}\n".encode(errors="surrogateescape")
            if one.status is None:
                self._kill(one)

    def _kill(self, one: job.Job) -> None:
        """Kill all of a job's processes; when it returns they are gone and its status is known."""
        if len(self._jobs) == 1 and not one.elders:
            tree.kill(-1)  # everything but us, in one atomic step
            self._await(lambda: one.status is not None and not tree.living())
            return
        if one.supervised:
            tree.kill_below(one.pid)
        else:
            others = {other.pid for other in self._jobs.values() if other is not one}
            tree.kill_except(others | one.elders)
        self._await(lambda: one.status is not None)

    def _await(self, gone: Callable[[], bool]) -> None:
        limit_s = time.monotonic() + _DYING_S
        while True:
            self._reap()
            if gone():
                return
            if time.monotonic() > limit_s:
                os._exit(70)
            time.sleep(0.0005)

    def _close_pipe(self, one: job.Job, fd: int) -> None:
        self._poll.unregister(fd)
        os.close(fd)
        del self._pipes[fd]
        one.open.discard(fd)

    def _finish(self, one: job.Job) -> None:
        for fd in list(one.open):
            one.drain(fd)
            self._close_pipe(one, fd)
        del self._jobs[one.stream]
        self._control.sendall(one.answer())
