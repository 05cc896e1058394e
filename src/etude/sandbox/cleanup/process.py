"""Identifies a process by its number, its start and the boot, because the kernel reuses a number."""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_STATE, _START = 0, 19  # fields of /proc/PID/stat after the name
_ENDED = (b"Z", b"X")


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace_id() -> str:
    """The pid namespace: numbers mean nothing outside of it. Read each time, since a fork may have left it."""
    return os.readlink("/proc/self/ns/pid")


def pid_of(pidfd: int) -> int:
    """-1 for a process that is gone."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise ValueError(f"descriptor {pidfd} is not a process'")


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, for ever: its number, and its start in ticks since the boot."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """None when there is no such process, or only what its parent has not yet taken note of."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[_STATE] in _ENDED else cls(pid, int(fields[_START]))

    @classmethod
    def myself(cls) -> ProcessIdentity:
        process = cls.of(os.getpid())
        assert process is not None, "this process is alive"
        return process

    @property
    def alive(self) -> bool:
        return ProcessIdentity.of(self.pid) == self

    def kill(self, patience_s: float) -> bool:
        """Kill it and wait; whether it is gone. The descriptor is opened before the start is compared, so no successor can be hit."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive:
                return True
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            return bool(poll.poll(patience_s * 1000))
        except ProcessLookupError:
            return True
        finally:
            os.close(pidfd)
