"""From a fresh PID 1 to a locked cell: own /proc and tmpfs, then no capability, no new privilege, a seccomp filter, limits.

`become` is the namespace back end's way; launched back ends have their own surroundings and share `settle`.
"""

from __future__ import annotations

import fcntl
import os
import resource
import struct
from _socket import AF_INET, SOCK_DGRAM, socket

from etude.sandbox.inside import fault, files, frames, ground, runner, warm
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HIDDEN = ("kcore", "keys", "key-users", "sysrq-trigger", "timer_list", "kallsyms", "kmsg", "kpagecgroup")
_RUNNER_FILES = 4096  # the runner's own descriptors: two pipes a command
_HARD_MEMORY_MB = 256  # the runner itself must be able to hold a few large frames, however little its commands get
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def become(control: socket, code: bytes) -> Any:
    """Read the spec, close the cell, settle in it."""
    spec = receive(control)
    if spec is None:
        os._exit(0)

    def close() -> None:
        _furnish(spec.head)
        limit(spec.head)
        sys_.drop_capabilities()
        sys_.install_filter(code)

    return settle(control, spec, close, ground.Ground(spec.head))


def settle(control: socket, spec: frames.Frame, close: Callable[[], None], place: ground.Ground) -> Any:
    """Close the cell, write the first files, say READY; returns what the runner's loop returns."""
    try:
        close()
        store = files.Files(place)
        offset = 0
        for path, size in spec.head["files"]:
            store.write(path, spec.blob[offset : offset + size], 0o644)
            offset += size
    except (OSError, files.Refused) as error:
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


def _furnish(spec: dict[str, Any]) -> None:
    """The mounts that are this sandbox's own; everything else was inherited read-only and locked."""
    quiet = sys_.MS_NOSUID | sys_.MS_NODEV
    sys_.mount("proc", "/proc", "proc", quiet | sys_.MS_NOEXEC)
    for name in HIDDEN:
        if os.path.exists(f"/proc/{name}"):
            sys_.mount("/dev/null", f"/proc/{name}", None, sys_.MS_BIND)
    sys_.mount("/proc/sys", "/proc/sys", None, sys_.MS_BIND | sys_.MS_REC)
    sys_.set_read_only("/proc/sys", recursive=False)
    size = f"mode=755,size={spec['disk_mb']}m,nr_inodes={spec['disk_mb'] * ground.INODES_PER_MB}"
    for path in (spec["workdir"], "/tmp"):
        sys_.mount("tmpfs", path, "tmpfs", quiet, size)
    sys_.set_host_name("sandbox")
    probe = socket(AF_INET, SOCK_DGRAM)
    fcntl.ioctl(probe.fileno(), _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    probe.close()


def limit(spec: dict[str, Any], elsewhere: int = 0) -> None:
    """No way back from here. Limits come after unshare: earlier, NPROC would be shared with all of the user's processes."""
    sys_.prctl(sys_.PR_SET_DUMPABLE, 0)  # nobody inside reads this process' memory, descriptors or environment
    memory_bytes = max(spec["memory_mb"], _HARD_MEMORY_MB) << 20
    for limit, value in (
        (
            resource.RLIMIT_NPROC,
            2 * spec["pids"] + 2 + elsewhere,
        ),  # a command's own limit is half of it: supervisors come on top
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_AS, 4 * memory_bytes),
        (resource.RLIMIT_NOFILE, _RUNNER_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
