"""How a command's first process is started, in the runner or under a supervisor: a child of the runner that is a subreaper.

A supervisor exists only where another command runs already, so that each command's orphans stay attributable.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import os

from etude.sandbox.inside import offer, start

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from _socket import socket

    from etude.sandbox.inside.ground import SandboxPaths
    from etude.sandbox.inside.job import Job


class Leaders:
    def __init__(self, control: socket, place: SandboxPaths) -> None:
        self._control, self._place = control, place

    def start(self, one: Job) -> int:
        """The pid of the leader or of its supervisor; 0 in a forked child that is to become a warm run. Raises CantStart, OSError."""
        self._place.require_process()
        offer.begin()
        try:
            pid = self._supervisor(one) if one.supervised else self._leader(one)
        except (OSError, start.CantStart):
            offer.end()
            raise
        if pid:
            offer.end()
        return pid

    def _leader(self, one: Job) -> int:
        steps = [*one.first_steps] if self._place.confine is None else [*one.first_steps, self._place.confine]
        if not start.is_warm(one.request):
            return start.spawn(one.request, one.child_ends, steps)
        start.enter_folder(one.request["cwd"])
        pid = os.fork()
        if pid == 0:
            try:
                _signal.set_wakeup_fd(-1)
                self._control.detach()  # its number is closed below; the object must not close a reused number later
                start.become(one.request, one.child_ends, steps)
            except Exception as error:  # noqa: BLE001 - the stack above is the runner's: nothing may escape into it
                os.write(2, f"{error}\n".encode(errors="surrogateescape"))
                os._exit(125)
        return pid

    def _supervisor(self, one: Job) -> int:
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

    def _supervise(self, one: Job, report: int) -> int:
        """In the supervisor: never returns, except as 0 in the leader's own fork."""
        try:
            start.become_supervisor()
            self._place.gather()
            leader = self._leader(one)
            if leader:
                start.supervise(leader)
            return leader
        except start.CantStart as error:
            os.write(report, f"{error.code} {error}".encode(errors="surrogateescape"))
        except OSError as error:
            os.write(report, f"errno {error.errno}".encode())
        os._exit(1)
