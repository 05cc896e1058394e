"""How a command's first process is started: spawned (exec), forked (warm), or either under a supervisor.

An exec is `posix_spawn`, because copying the page tables of a Python process costs more than starting `true`. Limits are then
inherited from the runner, which lowers its soft ones for that moment. A supervisor is a subreaper between PID 1 and the command: it
exists only while another command runs, so that each command's orphans stay attributable.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import errno
import os
import resource

from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Steps = list[Callable[[], None]]  # what the command's process does to itself beyond session, streams and limits

_JOB_FILES = 1024  # the usual default; the runner's own limit is higher
_RESET = (_signal.SIGPIPE, _signal.SIGXFSZ)  # ignored by Python, which an exec would pass on
_PROC_DEVICE_PREFIX = "/proc"
ENVIRONMENT = {
    "PATH": "/opt/etude/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # as in the zygote: a warm run and a cold one iterate sets alike, today and tomorrow
    "PYTHONDONTWRITEBYTECODE": "1",  # exports hold what was written, not caches
}


class CantStart(Exception):
    """The command ends before it begins, as a shell would report it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def limits(request: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    bounds = [(resource.RLIMIT_DATA, request["data_mb"]), (resource.RLIMIT_AS, request["address_mb"])]
    return (
        *((limit, size_mb << 20) for limit, size_mb in bounds if size_mb),  # 0: a control group bounds it
        (
            resource.RLIMIT_FSIZE,
            (request["disk_mb"] + 1) << 20,
        ),  # above the tmpfs: "no space left" comes first, not a signal
        (resource.RLIMIT_NOFILE, _JOB_FILES),
        (resource.RLIMIT_NPROC, request["pids"] + 1 + request["elsewhere"]),  # the runner counts too
    )


def enter_folder(path: str) -> None:
    """chdir, but never into /proc: what a link there shows PID 1 is not what it shows its children."""
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_dev == os.stat(_PROC_DEVICE_PREFIX).st_dev:
                raise CantStart(126, f"cwd {path}: lies in /proc")
            os.fchdir(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise CantStart(126, f"cwd {path}: {error.strerror}") from None


def spawn(request: dict[str, Any], streams: list[int], steps: Steps) -> int:
    """exec in a new session; returns its pid. Raises CantStart, or BlockingIOError when processes are used up."""
    enter_folder(request["cwd"])
    variables = request["env"]
    argv = [os.fsencode(word) for word in request["argv"]]
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(streams)]
    program = _find(argv[0], variables.get("PATH", ""))
    if steps:
        return _fork_and_exec(program, request, streams, steps)
    hard = _lower_soft_limits(request)
    try:
        pid = os.posix_spawn(program, argv, variables, file_actions=actions, setsid=True, setsigdef=_RESET)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise
        raise CantStart(126, f"{request['argv'][0]}: {error.strerror}") from None
    finally:
        for limit, value in hard:
            resource.setrlimit(limit, (value, value))
    _limit_cpu(pid, request)
    return pid


def _fork_and_exec(program: bytes, request: dict[str, Any], streams: list[int], steps: Steps) -> int:
    """As `spawn`, where the new process has something to do to itself before the exec; a failed exec comes back through a pipe."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, False)
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        try:
            report = os.dup(writer)  # above the streams' numbers, closed by the exec
            become(request, streams, steps, report)
            os.execve(program, [os.fsencode(word) for word in request["argv"]], request["env"])
        except OSError as error:
            os.write(report, f"{error.strerror}".encode())
        os._exit(126)
    os.close(writer)
    with open(reader, "rb") as file:
        problem = file.read()
    if not problem:
        return pid
    os.waitpid(pid, 0)
    raise CantStart(126, f"{request['argv'][0]}: {problem.decode()}")


def _find(name: bytes, path: str) -> bytes:
    """The file that execvp would take. Raises CantStart(127)."""
    if b"/" in name:
        if not os.path.exists(name):
            raise CantStart(127, f"{os.fsdecode(name)}: no such file")
        return name
    for folder in os.fsencode(path).split(b":"):
        candidate = os.path.join(folder or b".", name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise CantStart(127, f"{os.fsdecode(name)}: command not found")


def _lower_soft_limits(request: dict[str, Any]) -> list[tuple[int, int]]:
    """What the spawned command will start with; returns the hard limits, to which the runner's own soft ones go back."""
    hard = []
    for limit, value in limits(request):
        most = resource.getrlimit(limit)[1]
        hard.append((limit, most))
        resource.setrlimit(limit, (value if most == resource.RLIM_INFINITY else min(value, most), most))
    return hard


def _limit_cpu(pid: int, request: dict[str, Any]) -> None:
    """A background process may outlive the time-out; it may not burn a core for ever."""
    if request["timeout_s"] is None:
        return
    seconds = _cpu_s(request)
    try:
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds))
    except ProcessLookupError:
        return  # already over


def _cpu_s(request: dict[str, Any]) -> int:
    return int(request["timeout_s"]) + 2


def become(request: dict[str, Any], streams: list[int], steps: Steps, spared: int = -1) -> None:
    """In a forked child: session, standard streams, limits; every descriptor but `spared` is closed. Little Python, few pages to copy.
    The steps come before the limits are the command's: some of them need descriptors of the runner."""
    os.setsid()
    for step in steps:
        step()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if spared < 0:
        os.closerange(3, most)
    else:
        os.closerange(3, spared)
        os.closerange(spared + 1, most)
        for number in _RESET:
            _signal.signal(number, _signal.SIG_DFL)
    for number in (_signal.SIGCHLD, _signal.SIGTERM):
        _signal.signal(number, _signal.SIG_DFL)
    cpu = () if request["timeout_s"] is None else ((resource.RLIMIT_CPU, _cpu_s(request)),)
    for limit, value in (*limits(request), *cpu):
        most = resource.getrlimit(limit)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))


def become_supervisor() -> None:
    os.setsid()
    _signal.set_wakeup_fd(-1)
    for number in (_signal.SIGCHLD, _signal.SIGTERM):
        _signal.signal(number, _signal.SIG_DFL)
    try:
        sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        if error.errno != errno.EINVAL:  # gVisor has none; see `apart`
            raise


def supervise(leader: int) -> None:
    """Wait for the leader among all orphans, then end as it ended."""
    os.closerange(0, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == leader:
            break
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != _signal.SIGKILL:
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def is_warm(request: dict[str, Any]) -> bool:
    """Whether the sandbox's own interpreter can serve this command; with interpreter options an exec is more honest."""
    argv = request["argv"]
    if not request["warm"] or os.path.basename(argv[0]) not in ("python", "python3") or len(argv) < 2:
        return False
    return argv[1] in ("-c", "-m") and len(argv) > 2 or not argv[1].startswith("-")
