"""The process that gives birth to sandboxes: single-threaded, with an empty environment, and it never sees a spec.

A request is one datagram holding one socket; the zygote forks a PID 1 that owns the socket, and forgets it. Files, commands and
answers go over that socket only, so no sandbox can find another one's data in the memory it was forked from. No code here uses
PDEATHSIG (it follows threads): a closed socket is the death signal at every level.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import errno
import functools
import gc
import json
import os
import resource
import struct
from _socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOL_SOCKET, socket

from etude.sandbox.inside import cell, claims, frames, root, seccomp, start, users, warm
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Role = Callable[[], Any]  # returns the next role, or None

# A uid without another user, so that a sandbox made by root is no user of the host; the overflow uid where this one isn't mapped.
UNPRIVILEGED_UIDS = (0x7E7D_0001, 65534)
SPACES = (
    sys_.CLONE_NEWUSER | sys_.CLONE_NEWNS | sys_.CLONE_NEWPID | sys_.CLONE_NEWNET
    | sys_.CLONE_NEWIPC | sys_.CLONE_NEWUTS | sys_.CLONE_NEWCGROUP
)  # fmt: skip


def main(control_fd: int) -> None:
    """Prepare the root as the first datagram says, then serve until the pool closes its end. Each role runs on a clean stack."""
    role: Role | None = _serve(socket(fileno=control_fd))
    while role is not None:
        role = role()


def _serve(control: socket) -> Role | None:
    config = json.loads(control.recv(1 << 16))
    try:
        for name in warm.PRELOAD:
            __import__(name)
        helper, unranged = prepare(config)
    except OSError as error:
        control.send(json.dumps({"error": str(error), "errno": error.errno}).encode())
        return None
    warm.dress(start.ENVIRONMENT)
    gc.collect()
    gc.freeze()
    gc.disable()
    code = seccomp.program()
    control.send(json.dumps({"unranged": unranged}).encode())
    while True:
        request = _next_request(control)
        if request is None:
            claims.outlive()
            return None
        client, programs, claim = request
        family = _family(helper, claim)
        pid = _spawn(client, claim)
        if pid == 0:
            control.close()
            claims.disown(claim)
            if helper is not None:
                helper.disown()
            return functools.partial(_live, client.detach(), programs, code, family)
        client.close()
        if family is not None:
            family.close()
        for fd in programs:
            if fd >= 0:
                os.close(fd)


def _next_request(control: socket) -> tuple[socket, tuple[int, int], claims.Claim | None] | None:
    """The socket of the next sandbox, its programs (see `cell.become`), and who its users are to be. All descriptors are closed
    on exec: no command may ever hold them. None when the pool is gone."""
    while True:
        data, rights, _, _ = control.recvmsg(64, CMSG_SPACE(16), MSG_CMSG_CLOEXEC)
        if not data:
            return None
        words = data.split()
        for level, kind, sent in rights:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                fd, *others = struct.unpack(f"{len(sent) // 4}i", sent)
                claim = claims.Claim(int(words[1]), int(words[2]), others.pop(0)) if len(words) == 3 else None
                return socket(fileno=fd), (others[0], others[1] if len(others) > 1 else -1), claim


def _family(helper: users.Helper | None, claim: claims.Claim | None) -> users.UserRange | None:
    """What a newborn must know of its range. A store that can't be lent is missed only by one with layers."""
    if helper is None or claim is None:
        return None
    try:
        return users.UserRange(helper.lend(claim.uid, claim.gid))
    except OSError as error:
        return users.UserRange(-1, str(error))


def _spawn(client: socket, claim: claims.Claim | None) -> int:
    """Fork PID 1 of a new sandbox and hand its pidfd to the client; 0 in the child."""
    try:
        pid, pidfd = sys_.fork_into(SPACES)
    except OSError as error:
        kind = "CapacityExhausted" if error.errno in (errno.EAGAIN, errno.ENOSPC, errno.ENOMEM) else "Unsupported"
        _send(client, frames.pack(frames.ERROR, 0, {"error": kind, "message": str(error)}), [])
        if claim is not None:
            os.close(claim.lock)
        return -1
    if pid:
        try:
            if claim is not None:
                claims.keep(claim, pid)
        except OSError as error:
            _send(client, frames.pack(frames.ERROR, 0, {"error": "Unsupported", "message": str(error)}), [])
        _send(client, frames.pack(frames.HELLO, 0, {"pid": pid}), [pidfd])
        os.close(pidfd)
    return pid


def _send(client: socket, frame: bytes, descriptors: list[int]) -> None:
    try:
        rights = (SOL_SOCKET, SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))
        client.sendmsg([frame], [rights] if descriptors else [])
    except (BrokenPipeError, ConnectionResetError):
        return  # the client is gone; the child sees its end of file
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        full = {"error": "CapacityExhausted", "message": frames.TOO_MANY_ON_THE_WAY}
        _send(client, frames.pack(frames.ERROR, 0, full), [])


def _live(fd: int, programs: tuple[int, int], code: bytes, family: users.UserRange | None) -> Role | None:
    """In the child, on a clean stack: map the one user (the zygote does that for a range), then become the cell."""
    control = socket(fileno=fd)
    try:
        if family is None:
            map_user(root.INSIDE_UID, root.INSIDE_UID)
    except OSError as error:
        _send(control, frames.pack(frames.ERROR, 0, {"error": "Unsupported", "message": str(error)}), [])
        os._exit(1)
    return cell.become(control, programs, code, family)


def _reap(number: int, frame: Any) -> None:
    """Dead runners are waited for, so that what they used counts as this process' children's: the meter of a stage reads that."""
    try:
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            claims.end(pid)
    except ChildProcessError:
        return  # none is left


def prepare(config: dict[str, Any]) -> tuple[users.Helper | None, str]:
    """Root: build the root file system, then become an unprivileged user for good. Anyone: enter a user namespace, with all ranges in it
    and a helper outside if this is the zygote of ranges; any other only finds out whether there could be one, and returns why not."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _signal.signal(_signal.SIGCHLD, _reap)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # more than any inside has, see `frames.TOO_MANY_ON_THE_WAY`
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    helper = users.Helper(config["ranges"], (config["stores"] or [None])[0]) if config["ranged"] else None
    unranged = "" if helper is not None else users.why_no_ranges(config["ranges"])
    os.umask(0o022)  # whatever the client's is: what is made here must be open to the inside
    if os.geteuid() == 0:
        sys_.unshare(sys_.CLONE_NEWNS)
        root.build(config)
        _become_unprivileged()
        _enter_user_namespace(helper)
    else:
        _enter_user_namespace(helper)
        root.build(config)
    return helper, unranged


def _enter_user_namespace(helper: users.Helper | None) -> None:
    uid, gid = os.getuid(), os.getgid()
    sys_.unshare(sys_.CLONE_NEWUSER | sys_.CLONE_NEWNS)
    if helper is None:
        map_user(uid, gid)
    else:
        helper.map(uid, gid)


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


def map_user(uid: int, gid: int) -> None:
    """In a fresh user namespace: be INSIDE_UID, which is `uid` outside."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{root.INSIDE_UID} {uid} 1"),
        ("gid_map", f"{root.INSIDE_UID} {gid} 1"),
    ):
        try:
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        except OSError as error:
            raise OSError(error.errno, f"/proc/self/{name}: {error.strerror}") from None
