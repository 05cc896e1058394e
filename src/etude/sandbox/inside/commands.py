"""The commands of a sandbox: started, watched, killed.

Promises: a time-out kills the command's whole tree, double forks and new sessions included, and nothing else; a failed fork is
`PidsExhausted`, never an empty success.
"""

from __future__ import annotations

import errno
import functools
import os
import time

from etude.sandbox.inside import fault, files, frames, leftover, start, tree, user, warm
from etude.sandbox.inside.kept import BufferedJob
from etude.sandbox.inside.leader import Leaders
from etude.sandbox.inside.streamed import StreamedJob

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from etude.sandbox.inside.ground import SandboxPaths
    from etude.sandbox.inside.job import Job
    from etude.sandbox.inside.loop import Loop

    Role = Callable[[], Any]

_WATCH_S = 0.1  # memory is looked at this often while something runs, be it what a command left behind
_DYING_S = 5.0  # a killed process that stays in the kernel for longer makes the sandbox unusable: it ends
_KILL = 9
_MOST_SIGNAL = 64


class Commands:
    def __init__(
        self, send: Callable[[bytes], None], loop: Loop, leaders: Leaders, store: files.FileOperations, spec: dict[str, Any], place: SandboxPaths
    ) -> None:  # fmt: skip
        self._send, self._loop, self._leaders = send, loop, leaders
        self._files, self._spec, self._place = store, spec, place
        self._jobs: dict[int, Job] = {}  # by stream
        self._next_watch_s = 0.0
        self._left_behind = False  # no command runs, but children of earlier ones do

    def __contains__(self, stream: int) -> bool:
        return stream in self._jobs

    def patience_s(self) -> float | None:
        if not self._jobs:
            return max(0.0, self._next_watch_s - time.monotonic()) if self._left_behind else None
        wakes_s = min(one.wakes_s() for one in self._jobs.values())
        return max(0.0, min(wakes_s, self._next_watch_s) - time.monotonic())

    def start(self, frame: frames.Frame) -> Role | None:
        """Serve RUN or EXEC. Returns only in a forked child that is to become a warm run: its role, for a clean stack."""
        request = self._request(frame.head)
        streams = frame.kind == frames.EXEC
        one = (
            StreamedJob(frame.stream, request, frame.blob, self._loop, self._send)
            if streams
            else BufferedJob(frame.stream, request, frame.blob, self._loop)
        )
        one.supervised = bool(self._jobs)
        arguments = warm.arguments(request["argv"], request["cwd"], request["env"]) if start.is_warm(request) else ()
        try:
            if request["user"] is not None and (become := user.change(self._files, request["user"])) is not None:
                one.first_steps.append(become)
            one.prepare()
            one.elders = set() if one.supervised else tree.living()
            one.pid = self._leaders.start(one)
        except start.CantStart as error:
            self._drop(one, one.refusal(error.code, f"{error}\n".encode(errors="surrogateescape")))
        except (OSError, files.FileRequestError) as error:
            self._drop(one, frames.pack(frames.ERROR, frame.stream, self._explained(error, request)))
        else:
            if one.pid == 0:
                return functools.partial(warm.run, request["argv"], *arguments, frame.head["env"])
            self._admit(one)
        return None

    def kill(self, stream: int) -> None:
        """CANCEL: its answer comes as usual."""
        if (one := self._jobs.get(stream)) is not None and one.status is None:
            self._kill(one)

    def signal(self, stream: int, number: int) -> None:
        if not 0 < number <= _MOST_SIGNAL:
            raise frames.FrameError(f"there is no signal {number}")
        one = self._jobs.get(stream)
        if one is None or one.status is not None:
            return
        if number == _KILL:
            self._kill(one)
            return
        parent_of = tree.parents()
        if one.supervised:
            members = tree.below([one.pid], parent_of) - {one.pid}
        else:
            members = set(parent_of) - tree.below(self._others(one) | one.elders, parent_of)
        for pid in members:
            tree.kill(pid, number)

    def streamed(self, stream: int) -> StreamedJob | None:
        """The running EXEC of a stream; None where it has ended."""
        one = self._jobs.get(stream)
        return one if isinstance(one, StreamedJob) else None

    def reap(self) -> None:
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

    def check(self) -> None:
        """What is due: time-outs, ends, the watch over memory."""
        now_s = time.monotonic()
        for one in list(self._jobs.values()):
            if one.status is None and now_s >= one.deadline_s:
                one.timed_out = True
                self._kill(one)
                now_s = time.monotonic()
            if one.finished(now_s) and one.settle():
                del self._jobs[one.stream]
                self._send(one.answer())
        self._left_behind = not self._jobs and bool(tree.living())
        if (self._jobs or self._left_behind) and now_s >= self._next_watch_s:
            self._next_watch_s = now_s + _WATCH_S
            self._watch_memory()
            if reason := self._place.excess():
                self._stop_all(reason)

    def _request(self, head: dict[str, Any]) -> dict[str, Any]:
        request = {**head, **{key: self._spec[key] for key in ("data_mb", "address_mb", "disk_mb", "pids")}}
        request.setdefault("user", None)
        request["cwd"] = self._place.real(os.path.join(self._spec["workdir"], request["cwd"] or ""))
        request["env"] = {**start.ENVIRONMENT, **self._place.environment, **self._spec["env"], **request["env"]}
        left = request["env"].get(leftover.VARIABLE)
        request["left"] = self._place.real(left) if left else None
        request["tmp"], request["elsewhere"] = self._place.tmp, self._place.elsewhere
        return request

    def _explained(self, error: OSError | files.FileRequestError, request: dict[str, Any]) -> dict[str, Any]:
        explained = fault.explain(error)
        if isinstance(error, OSError):
            if error.errno == errno.EAGAIN:
                explained["error"] = "PidsExhausted"
            elif explained["error"] != "DiskFull":
                explained["error"] = "InfraError"
            limit = f"(limit: {self._spec['pids']} processes)"
            explained["message"] = f"{request['argv'][0]!r} could not be started: {error.strerror} {limit}"
        return explained

    def _admit(self, one: Job) -> None:
        one.close_child_ends()
        self._next_watch_s = self._next_watch_s if self._jobs or self._left_behind else one.started_s + _WATCH_S
        self._jobs[one.stream] = one
        one.begin()

    def _drop(self, one: Job, answer: bytes) -> None:
        """The command never ran."""
        one.abandon()
        self._send(answer)

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

    def _others(self, one: Job) -> set[int]:
        return {other.pid for other in self._jobs.values() if other is not one}

    def _kill(self, one: Job) -> None:
        """Kill all of a job's processes; when it returns they are gone and its status is known."""
        if len(self._jobs) == 1 and not one.elders:
            # Everything but us: in one atomic step by Linux, by gVisor not, where a fork may slip through.
            self._await(lambda: one.status is not None and not tree.living(), lambda: tree.kill(-1))
            return
        if one.supervised:
            tree.kill_below(one.pid)
        else:
            tree.kill_except(self._others(one) | one.elders)
        self._await(lambda: one.status is not None)

    def _await(self, gone: Callable[[], bool], strike: Callable[[], None] = lambda: None) -> None:
        limit_s = time.monotonic() + _DYING_S
        while True:
            strike()
            self.reap()
            if gone():
                return
            if time.monotonic() > limit_s:
                os._exit(70)
            time.sleep(0.0005)
