"""Ranges of 65,536 users, one for each sandbox that has `uid_mode="range"`, disjoint among all live sandboxes of this machine.

Root takes them from numbers that no system hands out (systemd's list of UIDs calls 0x70000000 to 0x7FFFFFFE unused), anyone else from what
/etc/subuid and /etc/subgid give. A claim is a lock on a file; locks die with their holders, so nothing is to be reaped. The zygote holds
the lock as well (see `inside/claims`): a range is free again only when every process that could be one of its users is dead.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.sandbox.errors import CapacityExhausted, SandboxError, Unsupported
from etude.sandbox.inside.users import SIZE

_ROOT_FIRST, _ROOT_RANGES = 0x7000_0000, 2048
_RETRY_S = 1.0


@dataclass(frozen=True)
class UidSource:
    """Where ranges come from: first user, first group, how many ranges; the setuid tools that map them, none for root."""

    uid: int
    gid: int
    ranges: int
    tools: tuple[str, str] | None = None

    def config(self) -> dict[str, Any]:
        """As `inside.users` takes it."""
        number = self.ranges * SIZE
        return {"uids": [self.uid, number], "gids": [self.gid, number], "tools": self.tools}


def source(subuid: Path = Path("/etc/subuid"), subgid: Path = Path("/etc/subgid")) -> UidSource | None:
    """None where this user has no ids to give away. Whether the kernel agrees is found out by the zygote."""
    if os.geteuid() == 0:
        return UidSource(_ROOT_FIRST, _ROOT_FIRST, _ROOT_RANGES)
    tools = shutil.which("newuidmap"), shutil.which("newgidmap")
    uids, gids = _subordinate(subuid), _subordinate(subgid)
    if tools[0] is None or tools[1] is None or uids is None or gids is None:
        return None
    ranges = min(uids[1], gids[1]) // SIZE
    return UidSource(uids[0], gids[0], ranges, (tools[0], tools[1])) if ranges else None


class UidRange:
    """A range that is ours; the `Birth` of a sandbox that has no other: its end gives the range back."""

    first = -1  # process 1 introduces itself

    def __init__(self, uid: int, gid: int, lock: int) -> None:
        self.uid, self.gid, self.lock = uid, gid, lock

    def explain(self, error: SandboxError) -> SandboxError:
        return error

    async def end(self) -> None:
        self.release()

    def release(self) -> None:
        """Idempotent. The zygote's own hold may last a moment longer."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


class UidRangeAllocator:
    """Claims from a source, by locks in a folder that all of this user's pools share."""

    def __init__(self, source: UidSource, folder: Path) -> None:
        self._source, self._folder = source, folder
        self._next = os.getpid() % source.ranges  # pools begin apart, so that they rarely ask for the same

    def claim(self) -> UidRange:
        """Raises CapacityExhausted."""
        for offset in range(self._source.ranges):
            index = (self._next + offset) % self._source.ranges
            lock = os.open(self._folder / str(index), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._next = (index + 1) % self._source.ranges
            return UidRange(self._source.uid + index * SIZE, self._source.gid + index * SIZE, lock)
        raise CapacityExhausted(f"all {self._source.ranges} ranges of users of this machine are in use", _RETRY_S)


def folder() -> Path:
    """Where the locks lie, made if need be. Raises Unsupported where somebody else made it."""
    user = os.geteuid()
    runtime = Path("/run") if user == 0 else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    made = runtime / ("etude-uids" if user == 0 else f"etude-uids-{user}")
    made.mkdir(mode=0o700, exist_ok=True)
    found = made.lstat()
    if found.st_uid != user or not stat.S_ISDIR(found.st_mode):
        raise Unsupported(f"uid_mode='range': {made} is not a folder of this user; remove it")
    return made


def _subordinate(file: Path) -> tuple[int, int] | None:
    """(first, number) of this user's largest entry."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = ""
    try:
        entries = list(_entries(file.read_text().splitlines(), {name, str(os.geteuid())}))
    except OSError:
        return None
    return max(entries, key=lambda entry: entry[1], default=None)


def _entries(lines: Iterable[str], names: set[str]) -> Iterable[tuple[int, int]]:
    for line in lines:
        words = line.split(":")
        if len(words) == 3 and words[0] in names and words[1].isdigit() and words[2].isdigit():
            yield int(words[1]), int(words[2])
