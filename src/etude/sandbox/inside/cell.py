"""From a fresh PID 1 to a locked cell: own mounts and loopback, then no capability, no new privilege, a seccomp filter, limits.

`become` is the namespace back end's way; launched back ends have their own surroundings and share `settle`.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import errno
import fcntl
import functools
import os
import resource
import struct
from _socket import AF_INET, SCM_RIGHTS, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, socket, socketpair

from etude.sandbox.inside import fault, files, frames, furnish, ground, offer, runner, users, warm, warm_server
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

DOOR = ("127.0.0.1", 3128)  # where a policed way out is found, if there is one
_BACKLOG = 128
_RUNNER_FILES = 4096  # the runner's own descriptors: two pipes a command
_HARD_MEMORY_MB = 256  # the runner itself must be able to hold a few large frames, however little its commands get
_USED_UP = (errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def become(control: socket, programs: tuple[int, int], code: bytes, family: users.UserRange | None) -> Any:
    """Read the spec, close the cell, become the native runner. Returns only in a child: the role of the warm interpreter, if there is one.
    `programs`: its descriptor, and that of the warm interpreter's program or -1.
    `code`: the filter. With a `family`: as root of a range of users, with what root needs among them."""
    spec = receive(control)
    if spec is None:
        os._exit(0)
    passed: list[int] = []

    def close() -> None:
        grants = {"upper": _furnished(spec.head, family)}
        raise_loopback()
        if spec.head["place"].get("egress"):
            grants["egress"] = listen()
        grant(control, grants)
        passed.append(in_memory(frames.pack(frames.SPEC, 0, spec.head, spec.blob)))
        limit(spec.head)
        sys_.drop_capabilities(0 if family is None else users.CAPABILITIES)
        sys_.install_filter(code)

    try:
        close()
        started: list[int] = []
        if programs[1] >= 0:
            ours, theirs = socketpair()
            offer.begin()
            pid = os.fork()
            if pid == 0:
                control.detach()
                ours.detach()
                os.closerange(3, theirs.fileno())
                os.closerange(theirs.fileno() + 1, _RUNNER_FILES)
                return functools.partial(warm_server.serve, theirs)
            offer.end()
            theirs.close()
            started += [ours.detach(), pid]
        execute(programs[0], control, passed[0], programs[1], started)
    except (OSError, files.FileRequestError) as error:
        control.sendall(frames.pack(frames.ERROR, 0, fault.explain(error)))
        os._exit(1)


def _furnished(spec: dict[str, Any], family: users.UserRange | None) -> int:
    """A root that can't be made is no doing of the inside's or the caller's."""
    try:
        if family is not None:
            family.settle(bool(spec["place"].get("layers")))
        return furnish.furnish(spec)
    except users.Storeless as error:
        raise files.FileRequestError("Unsupported", str(error)) from None
    except OSError as error:
        kind = "CapacityExhausted" if error.errno in _USED_UP else "InfraError"
        raise files.FileRequestError(kind, f"its root could not be made: {error}") from None


def grant(control: socket, descriptors: dict[str, int]) -> None:
    """Hand descriptors to the client, by name; none stays here."""
    rights = (SOL_SOCKET, SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors.values()))
    control.sendmsg([frames.pack(frames.GRANT, 0, {"names": list(descriptors)})], [rights])
    for fd in descriptors.values():
        os.close(fd)


def in_memory(data: bytes) -> int:
    """A descriptor to read `data` from."""
    fd = os.memfd_create("spec", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def execute(program: int | str, control: socket, spec: int, code: int, interpreter: Sequence[int] = ()) -> None:
    """Become the native runner. It keeps its descriptors and the three standard ones; it makes itself undumpable. `code`: the program of the
    warm interpreter, or -1. `interpreter`: the socket and the number of one that runs already."""
    for number in (
        _signal.SIGPIPE,
        _signal.SIGXFSZ,
        _signal.SIGCHLD,
        _signal.SIGINT,
    ):  # an exec would pass on what is ignored
        _signal.signal(number, _signal.SIG_DFL)
    kept = [control.fileno(), spec, *([code] if code >= 0 else []), *interpreter[:1]]
    for fd in kept:
        os.set_inheritable(fd, True)
    os.execve(program, ["runner", *map(str, (*kept, *interpreter[1:]))], {})


def settle(control: socket, spec: frames.Frame, close: Callable[[], None], place: ground.SandboxPaths) -> Any:
    """Close the cell, write the first files, say READY; returns what the runner's loop returns."""
    try:
        close()
        store = files.FileOperations(place)
        offset = 0
        for path, size in spec.head["files"]:
            store.write(path, spec.blob[offset : offset + size], 0o644)
            offset += size
    except (OSError, files.FileRequestError) as error:
        control.sendall(frames.pack(frames.ERROR, 0, fault.explain(error)))
        os._exit(1)
    os.environ.update(place.environment)
    os.environ.update(spec.head["env"])  # what warm runs start from
    warm.expect(place.real(spec.head["workdir"]))
    control.sendall(frames.pack(frames.READY, 0, {}))
    return runner.Runner(control, store, spec.head, place).serve()


def receive(control: socket) -> frames.Frame | None:
    splitter = frames.Splitter()
    while data := control.recv(1 << 18):
        for frame in splitter.feed(data):
            return frame
    return None


def raise_loopback() -> None:
    """Bring the own loopback up, under the sandbox' own host name."""
    sys_.set_host_name("sandbox")
    probe = socket(AF_INET, SOCK_DGRAM)
    fcntl.ioctl(probe.fileno(), _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    probe.close()


def listen() -> int:
    """A descriptor of a listener where programs inside look for a proxy."""
    door = socket(AF_INET, SOCK_STREAM)
    door.bind(DOOR)
    door.listen(_BACKLOG)
    return door.detach()


def limit(spec: dict[str, Any], elsewhere: int = 0) -> None:
    """No way back from here. Limits come after unshare: earlier, NPROC would be shared with all of the user's processes."""
    offer.prepare()
    sys_.prctl(sys_.PR_SET_DUMPABLE, 0)  # no process inside can read this process' memory, descriptors or environment
    bounds = [
        (resource.RLIMIT_DATA, spec["data_mb"]),
        (resource.RLIMIT_AS, spec["address_mb"]),
    ]  # 0: a control group bounds it
    for limit, value in (
        (
            resource.RLIMIT_NPROC,
            2 * spec["pids"] + 2 + elsewhere,
        ),  # a command's own limit is half of it: supervisors come on top
        *((limit, max(size_mb, _HARD_MEMORY_MB) << 20) for limit, size_mb in bounds if size_mb),
        (resource.RLIMIT_NOFILE, _RUNNER_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
