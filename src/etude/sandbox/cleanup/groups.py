"""Ends a tree of control groups, of either version, that may be frozen and full of processes.

Source: Documentation/admin-guide/cgroup-v2.rst (cgroup.kill) and cgroup-v1/freezer-subsystem.rst of Linux.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from etude.sandbox.cleanup.errors import CleanupError

_PAUSE_S = 0.002


def remove(top: Path, patience_s: float) -> None:
    """Kill what is in it, then remove it from its leaves up. Raises Stuck."""
    end_s = time.monotonic() + patience_s
    while top.is_dir():
        problem = _once(top)
        if not problem:
            return
        if time.monotonic() > end_s:
            raise CleanupError(f"control group {top}: {problem} after {patience_s} s")
        time.sleep(_PAUSE_S)


def _once(top: Path) -> str:
    """One pass; what is still in the way."""
    problem = ""
    for folder in _leaves_first(top):
        _kill(folder)
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = f"{folder.name}: {error.strerror}"
    return problem


def _leaves_first(top: Path) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]


def _kill(folder: Path) -> None:
    """Everything in this one group. A process that enters meanwhile is met by the next pass."""
    if not _members(folder):
        return
    _write(folder / "freezer.state", "THAWED")  # v1: a frozen process does not die
    if _write(folder / "cgroup.kill", "1"):
        return
    for pid in _members(folder) - {os.getpid()}:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue  # gone
        try:
            if pid in _members(folder):  # the number was not taken over by a stranger before the descriptor was opened
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue  # gone, or another's: then the group stays, and that is said
        finally:
            os.close(pidfd)


def _members(folder: Path) -> set[int]:
    try:
        return {int(word) for word in (folder / "cgroup.procs").read_text().split()}
    except OSError:
        return set()


def _write(file: Path, text: str) -> bool:
    try:
        fd = os.open(file, os.O_WRONLY)
    except OSError:
        return False  # this version of control groups has no such file
    try:
        os.write(fd, text.encode())
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
