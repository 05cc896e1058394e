"""The few Linux calls that Python lacks, through ctypes. Each raises OSError that names the call; nothing here decides anything."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_holding = ctypes.PyDLL(None, use_errno=True)  # calls that keep the interpreter lock: a fork must not let go of it
MACHINE = os.uname().machine

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 4, 24, 28
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_SET_SECCOMP = 36, 38, 47, 22
PR_SET_PDEATHSIG, PR_GET_SECCOMP, PR_GET_NO_NEW_PRIVS = 1, 21, 39
_CAPABILITY_VERSION_3 = 0x20080522
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100
_NR_MOUNT_SETATTR = 442  # the same number on every architecture
_NR_CLONE3 = 435  # likewise
_SIGCHLD = 17
_CLONE_PIDFD, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID, _PR_GET_TID_ADDRESS = 0x1000, 0x200000, 0x1000000, 40
_NR_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT = 0x8000
_NR_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def call(number: int, what: str, *arguments: object) -> int:
    """A system call by its number."""
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), what)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def fork_into(flags: int) -> tuple[int, int]:
    """fork, with the child in new namespaces from its first instruction: (pid, pidfd), pid 0 in the child.

    One process instead of the two of unshare and fork. Does what os.fork does around the call, and passes libc's own cell for the
    thread id, as its fork would. Only for a process with one thread.
    """
    pidfd = ctypes.c_int(-1)
    cell = ctypes.c_void_p()
    if _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(cell), 0, 0, 0) == 0:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    arguments = (flags | _CLONE_PIDFD, ctypes.addressof(pidfd), cell.value or 0, 0, _SIGCHLD, 0, 0, 0)
    buffer = ctypes.create_string_buffer(struct.pack("8Q", *arguments), 64)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _holding.syscall(_NR_CLONE3, buffer, ctypes.c_size_t(64))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        code = ctypes.get_errno()
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(code, f"clone3: {os.strerror(code)}")
    return pid, pidfd.value


def fork_sibling() -> int:
    """fork, with the child as a child of this process' own parent: its pid, 0 in the child. Only for a process with one thread."""
    cell = ctypes.c_void_p()
    flags = _CLONE_PARENT | _SIGCHLD
    if _libc.prctl(_PR_GET_TID_ADDRESS, ctypes.addressof(cell), 0, 0, 0) == 0:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    tid = ctypes.c_void_p(cell.value or 0)
    none = ctypes.c_void_p(0)
    order = (
        (none, none, tid, none) if MACHINE == "x86_64" else (none, none, none, tid)
    )  # aarch64: the thread area comes first
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _holding.syscall(ctypes.c_long(_NR_CLONE[MACHINE]), ctypes.c_long(flags), *order)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    code = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, f"clone: {os.strerror(code)}")
    return pid


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount({kind or 'bind'} at {target})")


def set_read_only(path: str, *, recursive: bool) -> None:
    """Make a mount (and those below it) read-only and nosuid; needs Linux 5.12."""
    _set_attributes(path, _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, _AT_RECURSIVE if recursive else 0)


def restrict(path: str, *, read_only: bool) -> None:
    """Make a mount and those below it nosuid and nodev, and read-only if asked for."""
    _set_attributes(
        path, _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | (_MOUNT_ATTR_RDONLY if read_only else 0), _AT_RECURSIVE
    )


def _set_attributes(path: str, attributes: int, flags: int) -> None:
    packed = struct.pack("QQQQ", attributes, 0, 0, 0)
    result = _libc.syscall(_NR_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, packed, len(packed))
    _check(result, f"mount_setattr({path})")


def enter_root(path: str) -> None:
    """pivot_root into `path` and detach the old root, so that no path leads back."""
    os.chdir(path)
    number = _NR_PIVOT_ROOT.get(MACHINE)
    if number is None:
        raise OSError(f"no system call table for {MACHINE}; supported: x86_64, aarch64")
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount2(old root)")
    os.chdir("/")


def prctl(option: int, *arguments: int) -> None:
    _check(_libc.prctl(option, *(*arguments, 0, 0, 0, 0)[:4]), f"prctl({option})")


def install_filter(program: bytes) -> None:
    """Install a seccomp filter (array of sock_filter) on this process for good."""
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(fprog, len(fprog))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(holder))


def require_locked() -> None:
    """Raises OSError unless this process has a seccomp filter, no way to new privileges and no capability."""
    if _libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2 or _libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise OSError("the launcher left this process without a seccomp filter or no_new_privs")
    header, sets = struct.pack("Ii", _CAPABILITY_VERSION_3, 0), ctypes.create_string_buffer(24)
    _check(_libc.capget(header, sets), "capget")
    if sets.raw != b"\0" * 24:
        raise OSError(f"the launcher left capabilities: {sets.raw.hex()}")


def drop_capabilities(kept: int = 0) -> None:
    """Empty every capability set for good: bounding, ambient, then effective, permitted and inheritable; but for the bits in `kept`."""
    for capability in range(64):
        if not kept >> capability & 1 and _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # past the last one this kernel knows
    if (
        _libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0) < 0 and ctypes.get_errno() != errno.EINVAL
    ):  # clear all; gVisor has none to clear
        _check(-1, "prctl(PR_CAP_AMBIENT)")
    hold_capabilities(kept)


def hold_capabilities(kept: int) -> None:
    """Of those permitted have these in effect, and permit no other."""
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    low, high = kept & 0xFFFF_FFFF, kept >> 32
    _check(_libc.capset(header, struct.pack("6I", low, low, 0, high, high, 0)), "capset")


def set_host_name(name: str) -> None:
    _check(_libc.sethostname(name.encode(), len(name)), "sethostname")
