"""Who a command is to be, by number or by name in the inside's own /etc/passwd (read as any file is: following no link)."""

from __future__ import annotations

import os

from etude.sandbox.inside import files

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_BYTES = 1 << 20
_CAP_SETGID, _CAP_SETUID = 6, 7
_NO_ID = (1 << 32) - 1


def change(store: files.FileOperations, user: str | int) -> Callable[[], None] | None:
    """What the command's process must do to be this user; None where it is already. Raises Refused."""
    name, uid, gid = _found(store, str(user))
    if uid == os.geteuid():
        return None
    if not _may_change():
        raise files.FileRequestError(
            "Unsupported", f"user {user!r}: this sandbox has one user, number {os.geteuid()}; uid_mode='range' has more"
        )
    groups = _groups(store, name)

    def become() -> None:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)

    return become


def _found(store: files.FileOperations, user: str) -> tuple[str, int, int]:
    """(name, uid, gid); a number need not be in the file, and has the group of that number then."""
    number = int(user) if user.isascii() and user.isdigit() and len(user) <= 10 else -1
    for fields in _lines(store, "/etc/passwd"):
        if len(fields) >= 4 and fields[2].isdigit() and fields[3].isdigit():
            if fields[0] == user or int(fields[2]) == number:
                return fields[0], int(fields[2]), int(fields[3])
    if not 0 <= number < _NO_ID:
        raise files.FileRequestError("UserError", f"user {user!r} is neither a number nor in the sandbox' /etc/passwd")
    return "", number, number


def _groups(store: files.FileOperations, name: str) -> list[int]:
    rows = [fields for fields in _lines(store, "/etc/group") if len(fields) >= 4 and fields[2].isdigit()]
    return [int(fields[2]) for fields in rows if name and name in fields[3].split(",")]


def _lines(store: files.FileOperations, path: str) -> list[list[str]]:
    try:
        text = store.read(path, _MOST_BYTES, 0).decode(errors="surrogateescape")
    except (OSError, files.FileRequestError):
        return []  # an image need not have one
    return [line.split(":") for line in text.splitlines()]


def _may_change() -> bool:
    with open("/proc/self/status", "rb", buffering=0) as file:
        for line in file.read(1 << 14).splitlines():
            if line.startswith(b"CapEff:"):
                held = int(line.split()[1], 16)
                return bool(held >> _CAP_SETUID & 1 and held >> _CAP_SETGID & 1)
    return False
