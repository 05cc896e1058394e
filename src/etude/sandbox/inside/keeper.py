"""The process back end, for machines where nothing better works, and only when asked for: Landlock, seccomp, rlimits.

Two processes hold a sandbox. The keeper, a subreaper, lives as long as anything inside does: when the runner ends for whatever reason
it kills all, then removes the sandbox' folder. Each is in a Landlock domain of its own with scoped signals, so `kill(-1)` means
"everything below me" to each of them, a command can't signal its runner, and nothing inside signals the host.

Weaker than namespaces, and known: names and sizes of the host's files can be asked for (stat), though not their contents or lists;
`/proc` is closed to commands; disk is watched, not bounded; changing modes, owners and times of files by path is refused, because
Landlock does not mediate it; sockets are refused altogether, UNIX ones too, because it does not mediate connecting to a path either.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import errno
import functools
import os
import stat
from _socket import socket

from etude.sandbox.inside import cell, frames, ground, landlock, root, seccomp, start, tree
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it
if TYPE_CHECKING:
    from typing import Any

# One uid for each keeper, unlike any person's and any range handed out by useradd: a process number is unique while it lives.
_FIRST_UID = 0x7E80_0000
_NOBODY = 65534
_ELSEWHERE_SLACK = 256  # processes the same person may start outside the sandbox before its own forks fail
# By the system's own tools, which bear any depth; a folder may have been made with a mode that closes it to its owner.
_REMOVE = 'chmod -R u+rwX -- "$0"; exec rm -rf -- "$0"'
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ASKED = ("/etc/ssl/openssl.cnf",)  # node takes its absence, and ends where it may not look
_DEEPEST = 4096  # of folders that are counted: to open one, Landlock looks at all that are above it
_SUPERVISORS = 2  # a command under a supervisor is two processes


def keep(control: socket, spec: frames.Frame) -> Any:
    """Split into keeper and runner. Returns what the runner's loop returns, and never in the keeper. Raises OSError."""
    place: dict[str, Any] = spec.head["place"]
    if (found := landlock.abi()) < landlock.OLDEST_ABI:
        raise OSError(
            f"Landlock of version {found} can't keep signals inside; version {landlock.OLDEST_ABI} is Linux 6.12"
        )
    if os.geteuid() == 0:
        _take_unshared_user()
    sys_.prctl(sys_.PR_SET_DUMPABLE, 0)
    folder = os.path.join(place["scratch"], f"etude-{os.urandom(8).hex()}")
    _make(folder, place["python"])
    try:
        sys_.install_filter(seccomp.program())
        sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
        shown = _shown(place)
        own = [(folder, landlock.OWN), (place["scratch"], landlock.REMOVE_DIR), ("/proc", landlock.READ)]
        _shut(landlock.ruleset(shown + own))
        pid = os.fork()
    except OSError:
        _remove_empty(folder)
        raise
    if pid:
        control.close()
        _wait(folder)
    return _run(control, spec, folder, shown)


def _run(control: socket, spec: frames.Frame, folder: str, shown: list[tuple[str, int]]) -> Any:
    """In the runner: ready to die with its keeper, then settled."""
    own = ground.SandboxPaths(spec.head, {spec.head["workdir"]: f"{folder}/work", "/tmp": f"{folder}/tmp"})
    own.environment = {"PATH": f"{folder}/bin:{start.ENVIRONMENT['PATH']}", "HOME": own.tmp, "TMPDIR": own.tmp}
    own.elsewhere = _processes_elsewhere()

    def close() -> None:
        _signal.signal(_signal.SIGTERM, _end_all)
        sys_.prctl(sys_.PR_SET_PDEATHSIG, _signal.SIGTERM)  # safe here: the keeper has one thread
        sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
        _shut(landlock.scopes_only())
        tree.narrow()
        rights = [(f"{folder}/{name}", landlock.OWN) for name in ("work", "tmp")]
        rules = landlock.ruleset([*shown, *rights, (f"{folder}/bin", landlock.READ)])
        own.confine = functools.partial(landlock.restrict, rules)
        own.excess = functools.partial(_excess, own, spec.head)
        own.require_room = functools.partial(_require_room, own, spec.head)
        cell.limit(spec.head, own.elsewhere)
        sys_.drop_capabilities()
        sys_.install_filter(seccomp.program(alone=True))
        sys_.require_locked()

    return cell.settle(control, spec, close, own)


def _shut(rules: int) -> None:
    """Enter a domain, and make sure that signals end at its border: from here on `kill(-1)` is used."""
    parent = os.getppid()
    landlock.restrict(rules)
    os.close(rules)
    try:
        os.kill(parent, 0)
    except PermissionError:
        return
    raise OSError("Landlock did not keep signals inside; refusing to go on")


def _take_unshared_user() -> None:
    os.setgroups([])
    for uid in (_FIRST_UID + os.getpid(), _NOBODY):
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:
            continue
        return
    raise OSError("root can't become an unprivileged user here: is it root of a user namespace with a one-line map?")


def _make(folder: str, python: str) -> None:
    os.mkdir(folder, 0o700)
    for name in ("work", "tmp", "bin"):
        os.mkdir(f"{folder}/{name}", 0o755)
    for name in ("python", "python3"):
        os.symlink(python, f"{folder}/bin/{name}")


def _remove_empty(folder: str) -> None:
    for name in ("python", "python3"):
        os.unlink(f"{folder}/bin/{name}")
    for name in ("work", "tmp", "bin", "."):
        os.rmdir(os.path.normpath(f"{folder}/{name}"))


def _shown(place: dict[str, Any]) -> list[tuple[str, int]]:
    """What runner and commands may read and execute: as in `root`, but nothing can be covered there."""
    paths = [path for path in (*root.SYSTEM, *root.ETC, *_ASKED) if os.path.exists(path)] + [
        path for path, _ in place["binds"]
    ]
    for hidden in place["hide"]:
        above = next((path for path in paths if f"{hidden}/".startswith(os.path.realpath(path) + "/")), None)
        if above is not None and os.path.exists(hidden):
            raise OSError(f"{hidden} must stay hidden but lies in {above}, and Landlock can't cover it; move it away")
    devices = [f"/dev/{name}" for name in root.DEVICES if os.path.exists(f"/dev/{name}")]
    return [(path, landlock.READ) for path in paths] + [(path, landlock.USE) for path in devices]


def _wait(folder: str) -> None:
    """The keeper's life: until the runner ends, then until nothing is left."""
    _signal.signal(_signal.SIGTERM, _end_all)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.wait()
    while True:
        _kill_all()
        try:
            os.wait()
        except ChildProcessError:
            break
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)  # the client asks keeper and runner to end at the same time
    os.execv("/bin/sh", ["sh", "-c", _REMOVE, folder])


def _end_all(number: int, frame: Any) -> None:
    """A request to end: in the runner its keeper died, in the keeper the client gave the runner up."""
    _kill_all()
    if tree.is_narrow():
        os._exit(0)


def _kill_all() -> None:
    try:
        os.kill(-1, _signal.SIGKILL)  # the domain's border is checked in `_shut`
    except ProcessLookupError:
        return  # no process is left


def _processes_elsewhere() -> int:
    """What RLIMIT_NPROC counts in addition to the runner and its commands, since the limit belongs to the user and not to the sandbox."""
    if os.getuid() == _FIRST_UID + os.getppid():
        return 1  # the keeper
    total = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == os.getuid():
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue  # gone
    return total + _ELSEWHERE_SLACK


def _used(folder: str, most_files: int) -> tuple[int, int, str]:
    """(bytes, files and folders, a closed folder) below. A folder with files that its mode keeps from being counted is closed; "" without one.
    One folder is open at a time. Counting ends at too many files, which a tree deeper than `_DEEPEST` counts as."""
    fd = os.open(folder, _FOLDER)
    try:
        size, count, inner, closed = _listed(fd)
        levels = [(_identity(fd), inner)]  # the folders on the way down, and which of theirs are still to be counted
        while levels and count <= most_files and not closed:
            if levels[-1][1]:
                name = levels[-1][1].pop()
                below, closed = _opened(name, fd)
                if below < 0:
                    continue
                more, files, inner, shut = _listed(below)
                size, count, closed = size + more, count + files, name if shut else ""
                if not inner:
                    os.close(below)  # without a step into it: its mode may close the way back
                    continue
                os.close(fd)
                fd = below
                levels.append((_identity(fd), inner))
                if len(levels) > _DEEPEST:
                    return size, most_files + 1, ""
                continue
            levels.pop()
            if levels:
                try:
                    above = os.open("..", _FOLDER, dir_fd=fd)
                except OSError:
                    break  # its mode has changed meanwhile, or it was removed
                os.close(fd)
                fd = above
                if _identity(fd) != levels[-1][0]:
                    break  # moved meanwhile: the rest is counted next time
    finally:
        os.close(fd)
    return size, count, closed


def _listed(fd: int) -> tuple[int, int, list[str], str]:
    """Bytes of a folder's files, its entries, the folders among them, and a name that the folder's mode hides."""
    size, inner, hidden = 0, [], ""
    try:
        names = os.listdir(fd)
    except OSError:
        return 0, 0, [], ""  # removed
    for name in names:
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.EACCES:
                hidden = name
            continue  # removed since it was listed
        if stat.S_ISDIR(status.st_mode):
            inner.append(name)
        else:
            size += status.st_blocks * 512
    return size, len(names), inner, hidden


def _opened(name: str, fd: int) -> tuple[int, str]:
    """A descriptor, or -1 and the name of a folder that is closed to its owner; -1 and "" for one that was removed since it was listed."""
    try:
        return os.open(name, _FOLDER, dir_fd=fd), ""
    except OSError as error:
        return -1, name if error.errno == errno.EACCES else ""


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _excess(place: ground.SandboxPaths, spec: dict[str, Any]) -> str:
    processes = len(tree.living())
    if processes > _SUPERVISORS * spec["pids"]:
        return f"{processes} processes (limit: {spec['pids']})"
    size, count, closed = _both(place, spec)
    if closed:
        return f"the mode of its folder {closed!r} hides what the folder holds, and disk_mb={spec['disk_mb']} covers that too"
    return place.grown(size, count)


def _both(place: ground.SandboxPaths, spec: dict[str, Any]) -> tuple[int, int, str]:
    """What workdir and /tmp hold together."""
    most = spec["disk_mb"] * ground.INODES_PER_MB
    found = [_used(place.real(name), most) for name in (spec["workdir"], "/tmp")]
    return sum(one[0] for one in found), sum(one[1] for one in found), next((one[2] for one in found if one[2]), "")


def _require_room(place: ground.SandboxPaths, spec: dict[str, Any], size_bytes: int) -> None:
    used, count, closed = _both(place, spec)
    if closed or used + size_bytes > spec["disk_mb"] << 20 or count >= spec["disk_mb"] * ground.INODES_PER_MB:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
