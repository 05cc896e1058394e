"""Landlock (Linux 5.13, scopes 6.12): a process gives up files and signals for good, without a namespace and without root.

What it can't do is said in `keeper`. Source: Documentation/userspace-api/landlock.rst and include/uapi/linux/landlock.h of Linux.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

from etude.sandbox.inside import syscalls as sys_

# 6 is the first with scopes: before it, a process shut in so could still signal every process of its user.
OLDEST_ABI = 6
_NR_CREATE, _NR_ADD, _NR_RESTRICT = 444, 445, 446  # the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR = 1 << 4
_ALL_FILES = (1 << 16) - 1  # up to IOCTL_DEV, ABI 5
_OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15  # with TRUNCATE and IOCTL_DEV
_TCP = 3  # bind and connect, ABI 4
_SCOPES = 3  # abstract sockets and signals, ABI 6
_MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block devices: never

READ = EXECUTE | READ_FILE | READ_DIR
OWN = _ALL_FILES & ~_MAKE_DEVICES & ~(1 << 15)
USE = READ_FILE | WRITE_FILE


def _call(number: int, what: str, *arguments: int | bytes | None) -> int:
    typed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return sys_.call(number, what, *typed)


def abi() -> int:
    """The kernel's version of Landlock. Raises OSError where it is absent or switched off."""
    try:
        return _call(_NR_CREATE, "landlock_create_ruleset(version)", None, 0, _VERSION_FLAG)
    except OSError as error:
        raise OSError(
            error.errno, f"this kernel has no Landlock ({error.strerror}); boot with lsm=...,landlock"
        ) from None


def ruleset(allowed: list[tuple[str, int]]) -> int:
    """A descriptor for `restrict`: nothing but `allowed` paths (with everything below them) may be used, no signal leaves."""
    attributes = struct.pack("QQQ", _ALL_FILES, _TCP, _SCOPES)
    rules = _call(_NR_CREATE, "landlock_create_ruleset", attributes, len(attributes), 0)
    for path, rights in allowed:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _OF_A_FILE
            _call(_NR_ADD, f"landlock_add_rule({path})", rules, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
        finally:
            os.close(fd)
    return rules


def scopes_only() -> int:
    """A ruleset that only keeps signals and abstract sockets below."""
    attributes = struct.pack("QQQ", 0, 0, _SCOPES)  # handled files and ports: none
    return _call(_NR_CREATE, "landlock_create_ruleset(scopes)", attributes, len(attributes), 0)


def restrict(rules: int) -> None:
    """For this thread and its children, for good."""
    sys_.prctl(sys_.PR_SET_NO_NEW_PRIVS, 1)
    _call(_NR_RESTRICT, "landlock_restrict_self", rules, 0)
