"""Whose a control group is, written in its name: so that any later process can tell what a dead one left behind.

A number of a process alone would not do: numbers are used again, and other pid namespaces may see the same groups.
"""

from __future__ import annotations

import os
from pathlib import Path

_PREFIX = "etude"
_START_FIELD = 19  # of /proc/PID/stat after the command's name: start time in clock ticks since boot


def name() -> str:
    """A fresh one for this process."""
    pid = os.getpid()
    return f"{_PREFIX}-{_namespace()}-{pid}-{_started(pid)}-{os.urandom(4).hex()}"


def is_dead(folder_name: str) -> bool:
    """Whether the name is one of ours whose process has gone. False for what this process can't judge."""
    words = folder_name.split("-")
    if len(words) != 5 or words[0] != _PREFIX or words[1] != _namespace() or not words[2].isdigit():
        return False
    return _started(int(words[2])) != words[3]


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")


def _started(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text[text.rindex(b")") + 2 :].split()[_START_FIELD].decode()
