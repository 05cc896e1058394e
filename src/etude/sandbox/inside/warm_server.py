"""The interpreter of a sandbox that warm runs are forks of: a process that the C runner starts on first use (`native/warm.c`).

Each request comes with the descriptors of the run's standard streams. The answer is the number of a new process whose parent is the
runner, so the runner waits for it, limits and kills it as any other command. A run that starts while another command runs gets a
supervisor between the runner and itself, as in `native/supervise.c`.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import functools
import gc
import json
import os
import resource
import struct
from _socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOL_SOCKET, socket

from etude.sandbox.inside import start, terminal, warm
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Role = Callable[[], Any]

_LENGTH = struct.Struct("!I")
_MOST_DESCRIPTORS = 4
_RECEIVE_BYTES = 1 << 18
# struct Report of native/supervise.h: leader, stage and errno of a failure, over, status, struct rusage.
_REPORT = struct.Struct("@iii?i18q")


def main(control_fd: int) -> None:
    """Start, then serve. A run gets a clean stack."""
    sys_.prctl(sys_.PR_SET_DUMPABLE, 0)  # no command reads this process' memory or descriptors
    control = socket(fileno=control_fd)
    os.set_inheritable(control_fd, False)
    for name in warm.PRELOAD:
        __import__(name)
    warm.dress(start.ENVIRONMENT)
    gc.collect()
    gc.freeze()
    gc.disable()
    role = serve(control)
    if role is not None:
        role()


def serve(control: socket) -> Role | None:
    """Returns the role of a run, in a fork, or None when the runner has closed its end."""
    while True:
        received = _receive(control)
        if received is None:
            return None
        request, descriptors = received
        try:
            pid, role = _begin(control, request, descriptors)
        except OSError as error:
            pid, role = -(error.errno or 5), None
        for fd in descriptors:
            if role is None:
                os.close(fd)
        if role is not None:
            return role
        control.sendall(struct.pack("@ii", max(pid, 0), max(-pid, 0)))


def _receive(control: socket) -> tuple[dict[str, Any], list[int]] | None:
    """One request and its descriptors; None at the end of the connection."""
    data, rights, _, _ = control.recvmsg(_RECEIVE_BYTES, CMSG_SPACE(4 * _MOST_DESCRIPTORS), MSG_CMSG_CLOEXEC)
    descriptors = [
        fd
        for level, kind, sent in rights
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS)
        for fd in struct.unpack(f"{len(sent) // 4}i", sent)
    ]
    while data and (len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]):
        more = control.recv(_RECEIVE_BYTES)
        if not more:
            return None
        data += more
    return (json.loads(data[_LENGTH.size :]), descriptors) if data else None


def _begin(control: socket, request: dict[str, Any], descriptors: list[int]) -> tuple[int, Role | None]:
    """The number of the new process; in that process (or in the run below it) 0 and what it does on a clean stack. Raises OSError."""
    request["env"] = dict(pair.split("=", 1) for pair in request["env"])
    warm.expect(request["workdir"])
    own, path = warm.arguments(request["argv"], request["cwd"], request["env"])
    run = functools.partial(warm.run, request["argv"], own, path, request["env"])
    supervised = request["supervised"]
    _limit_processes(request, supervised)
    pid = sys_.fork_sibling()
    if pid:
        return pid, None
    control.detach()
    try:
        if supervised:
            _supervise(descriptors.pop())
        _become(request, descriptors)
    except start.CantStart as error:
        os.write(descriptors[2], f"{error}\n".encode(errors="surrogateescape"))
        os._exit(error.code)
    except Exception as error:  # noqa: BLE001 - the stack above is the server's: nothing may escape into it
        os.write(descriptors[2], f"{error}\n".encode(errors="surrogateescape"))
        os._exit(125)
    return 0, run


def _limit_processes(request: dict[str, Any], supervised: bool) -> None:
    """A run more must fail here as a fork in a command would; a supervisor is not counted."""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    own = request["pids"] + 1 + request["elsewhere"]
    within = own if most == resource.RLIM_INFINITY else min(own, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (most if supervised else within, most))


def _become(request: dict[str, Any], streams: list[int]) -> None:
    steps: list[Callable[[], None]] = []
    if request["user"] is not None:
        steps.append(functools.partial(_change_user, *request["user"]))
    if request["tty"]:
        steps.append(functools.partial(terminal.lead, streams[0]))
    start.become(request, streams, steps)
    start.enter_folder(request["cwd"])


def _change_user(uid: int, gid: int, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _supervise(report: int) -> None:
    """Fork the run and return in it. This process becomes its supervisor, and ends when nothing of the run is left."""
    os.setsid()
    for number in (_signal.SIGCHLD, _signal.SIGTERM):
        _signal.signal(number, _signal.SIG_DFL)
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    try:
        leader = os.fork()
    except OSError as error:
        os.write(report, _REPORT.pack(0, 1, error.errno or 5, False, 0, *[0] * 18))
        os._exit(1)
    if leader == 0:
        # The run says who it is before any code of the program can kill its supervisor.
        os.write(report, _REPORT.pack(os.getpid(), 0, 0, False, 0, *[0] * 18))
        os.close(report)
        return
    os.dup2(report, 0)
    os.closerange(1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == leader:
            os.write(0, _REPORT.pack(leader, 0, 0, True, status, *_times(usage), usage.ru_maxrss, *[0] * 13))
            os.close(0)


def _times(usage: resource.struct_rusage) -> list[int]:
    parts = []
    for seconds in (usage.ru_utime, usage.ru_stime):
        parts += [int(seconds), int(seconds % 1 * 1_000_000)]
    return parts
