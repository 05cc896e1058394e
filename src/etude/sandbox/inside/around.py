"""Namespaces and the file system of a sandbox around a folder of the host, made by the sandbox' own first process.

`isolate` forks that process into new namespaces while this interpreter still has the host in sight. `lay_out` then builds the root from
the steps of `sandbox.folder`, which bubblewrap gets as words of its command line. Promise: after `lay_out` no path leads to the host's own
root, every file system of the host but the folder is read-only, and none honours setuid programs.
"""

from __future__ import annotations

import os
from _socket import socket

from etude.sandbox.inside import frames, furnish, ground, root
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any

HOST_NETWORK = "host"
_SPACES = (
    sys_.CLONE_NEWUSER | sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWCGROUP
)  # fmt: skip
# Where the new root is mounted while it is built. The host's /tmp always exists, and nothing of it is shown inside.
_WHOLE = "/tmp"
_REFUSED = 1


def isolate(control_fd: int, network: str) -> None:
    """Return in the first process of new namespaces. The caller's process waits for it and ends as it ended."""
    uid, gid = os.getuid(), os.getgid()
    try:
        pid, _ = sys_.fork_into(_SPACES | (0 if network == HOST_NETWORK else sys_.CLONE_NEWNET))
        if pid:
            _wait(pid)
        _map_user(uid, gid)
    except OSError as error:
        refusal = frames.pack(frames.ERROR, 0, {"error": "Unsupported", "message": str(error)})
        socket(fileno=os.dup(control_fd)).sendall(refusal)
        os._exit(_REFUSED)


def _wait(pid: int) -> None:
    """The launcher's life. It keeps no end of the control socket, or the client would not see the sandbox die."""
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    _, status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _map_user(uid: int, gid: int) -> None:
    """The person stays who they are. Root becomes another number, because an exec of user 0 would regain capabilities."""
    inside = uid or root.INSIDE_UID
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {uid} 1"), ("gid_map", f"{inside} {gid} 1")):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except OSError as error:
            raise OSError(error.errno, f"/proc/self/{name}: {error.strerror}") from None


def lay_out(spec: dict[str, Any]) -> None:
    """Make the root that `spec["place"]["steps"]` describes, and enter it. Each step is [kind, path, source, mode, size in bytes]."""
    sys_.mount("none", "/", None, sys_.MS_REC | sys_.MS_PRIVATE)
    steps = [(step, _source(step)) for step in spec["place"]["steps"]]  # before the new root covers any of them
    sys_.mount("tmpfs", _WHOLE, "tmpfs", sys_.MS_NOSUID | sys_.MS_NODEV, "mode=755,size=1m")
    for step, source in steps:
        _MAKERS[step[0]](step, source)
        if source >= 0:
            os.close(source)
    os.mkdir(f"{_WHOLE}/proc")
    furnish.mount_proc(_WHOLE)
    sys_.set_read_only(_WHOLE, recursive=False)
    sys_.enter_root(_WHOLE)


def _source(step: list[Any]) -> int:
    """A descriptor of what the step binds, -1 where it binds nothing or a device is absent."""
    kind, _, source, *_ = step
    if kind not in ("read", "write", "device") or kind == "device" and not os.path.exists(source):
        return -1
    return os.open(source, os.O_PATH | os.O_CLOEXEC)


def _bind(step: list[Any], source: int) -> None:
    if source < 0:
        return
    target = _WHOLE + step[1]
    root.bind(source, target)
    if step[0] != "device":
        sys_.restrict(target, read_only=step[0] == "read")


def _link(step: list[Any], source: int) -> None:
    path = _WHOLE + step[1]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(step[2], path)


def _folder(step: list[Any], source: int) -> None:
    os.makedirs(_WHOLE + step[1], exist_ok=True)


def _memory(step: list[Any], source: int) -> None:
    _, path, _, mode, size_bytes = step
    os.makedirs(_WHOLE + path, exist_ok=True)
    inodes = max(size_bytes >> 20, 1) * ground.INODES_PER_MB
    options = f"mode={mode:o},size={size_bytes},nr_inodes={inodes}"
    sys_.mount("tmpfs", _WHOLE + path, "tmpfs", sys_.MS_NOSUID | sys_.MS_NODEV, options)


_MAKERS = {"read": _bind, "write": _bind, "device": _bind, "link": _link, "folder": _folder, "memory": _memory}
