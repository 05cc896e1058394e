"""The process that gives birth to sandboxes: single-threaded, with an empty environment, and it never sees a spec.

A request is one datagram holding one socket; the zygote forks a launcher that owns the socket and forgets it. Files, commands and
answers go over that socket only, so no sandbox can find another one's data in the memory it was forked from. Nobody here uses
PDEATHSIG (it follows threads): a closed socket is the death signal at every level.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from etude.sandbox.inside import cell, frames, root, seccomp
from etude.sandbox.inside import syscalls as sys_

# Standard modules that exercise tests import anyway: loaded once here instead of in each warm run (5-20 ms each time).
PRELOAD = (
    "ast argparse bisect collections contextlib copy dataclasses decimal difflib enum fractions functools heapq importlib.util "
    "inspect io itertools linecache math operator random re runpy shutil statistics string tempfile textwrap threading traceback "
    "types typing unittest"
).split()
# A uid nobody else uses, so that a sandbox made by root is no user of the host; nobody's where this one isn't mapped.
UNPRIVILEGED_UIDS = (0x7E7D_0001, 65534)
SPACES = (
    sys_.CLONE_NEWUSER | sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWNET
    | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWCGROUP
)  # fmt: skip

Role = Callable[[], None]


def main(control_fd: int) -> None:
    """Prepare the root as the first datagram says, then serve until the pool closes its end. Each role runs on a clean stack."""
    role: Role | None = _serve(socket.socket(fileno=control_fd))
    while role is not None:
        role = role()  # type: ignore[func-returns-value]


def _serve(control: socket.socket) -> Role | None:
    config = json.loads(control.recv(1 << 16))
    try:
        for name in PRELOAD:
            __import__(name)
        prepare(config)
    except OSError as error:
        control.send(json.dumps({"error": str(error), "errno": error.errno}).encode())
        return None
    gc.collect()
    gc.freeze()
    gc.disable()
    code = seccomp.program()
    control.send(b"{}")
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data or not descriptors:
            return None
        try:
            pid = os.fork()
        except OSError as error:
            _refuse(descriptors[0], "CapacityExhausted", f"the zygote can't fork: {error.strerror}")
            pid = -1
        if pid == 0:
            control.close()
            return _launch(descriptors[0], code)
        os.close(descriptors[0])


def prepare(config: dict[str, Any]) -> None:
    """Root: build the root file system, then become an unprivileged user for good. Anyone: enter a user namespace."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # launchers and runners are reaped by the kernel
    sys_.prctl(sys_.PR_SET_CHILD_SUBREAPER, 1)
    if os.geteuid() == 0:
        sys_.unshare(sys_.CLONE_NEWNS)
        root.build(config)
        _become_unprivileged()
        _enter_user_namespace(sys_.CLONE_NEWUSER | sys_.CLONE_NEWNS, os.getuid(), os.getgid())
    else:
        _enter_user_namespace(sys_.CLONE_NEWUSER | sys_.CLONE_NEWNS, os.getuid(), os.getgid())
        root.build(config)


def _become_unprivileged() -> None:
    os.setgroups([])
    for uid in UNPRIVILEGED_UIDS:
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:
            continue
        sys_.prctl(sys_.PR_SET_DUMPABLE, 1)  # lost by setresuid; without it /proc/self/uid_map is root's
        return
    raise OSError("no unprivileged uid can be taken: is this root itself inside a user namespace with a one-line map?")


def _enter_user_namespace(flags: int, uid: int, gid: int) -> None:
    sys_.unshare(flags)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{root.INSIDE_UID} {uid} 1"), ("gid_map", f"{root.INSIDE_UID} {gid} 1")):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except OSError as error:
            raise OSError(error.errno, f"/proc/self/{name}: {error.strerror}") from None


def _launch(fd: int, code: bytes) -> Role | None:
    """In the launcher: new namespaces, fork the runner (PID 1 of the new pid namespace), hand its pidfd to the client, go."""
    try:
        _enter_user_namespace(SPACES, root.INSIDE_UID, root.INSIDE_UID)
        pid = os.fork()
    except OSError as error:
        kind = "CapacityExhausted" if error.errno in (11, 28) else "Unsupported"  # EAGAIN, ENOSPC: too many of something
        _refuse(fd, kind, str(error))
        os._exit(1)
    if pid == 0:
        return cell.become(fd, code)
    with socket.socket(fileno=fd) as client:
        socket.send_fds(client, [frames.pack(frames.HELLO, 0, {"pid": pid})], [os.pidfd_open(pid)])
    os._exit(0)


def _refuse(fd: int, kind: str, message: str) -> None:
    try:
        os.write(fd, frames.pack(frames.ERROR, 0, {"error": kind, "message": message}))
    except BrokenPipeError:
        return  # the client is gone: nobody is left to tell
