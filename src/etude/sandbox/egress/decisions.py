"""Every decision at the door, as a value and as a line of a file.

Promise: nothing passes without a line. A file that can't be written, or one sandbox' share of it that is used up, closes the door
(`DecisionLog.objection`), so that a sandbox can neither hide in a full disk nor fill one.
"""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

_MOST_TEXT = 256  # of what the inside wrote: enough to know it again


@dataclass(frozen=True)
class Decision:
    """One request and what became of it; written when it is over, refused ones at once. `host` is a door's name (pip, npm) where the
    request was for one. `reason` is "" for what went well."""

    time_s: float  # since the epoch, at its start
    sandbox: str
    method: str
    host: str
    port: int
    path: str
    allowed: bool
    status: int  # what the client was answered
    reason: str
    up_bytes: int
    down_bytes: int
    duration_s: float


def cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}[... {len(text) - _MOST_TEXT} more]"


class DecisionFile:
    """JSON lines, appended whole; None: nowhere. Many doors share one."""

    def __init__(self, path: Path | None) -> None:
        self._fd = -1
        self.broken = ""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, decision: Decision) -> None:
        if self._fd < 0:
            return
        line = json.dumps(asdict(decision)).encode() + b"\n"
        try:
            if os.write(self._fd, line) < len(line):
                self.broken = "the log of decisions could not be written whole"
        except OSError as error:
            self.broken = f"the log of decisions can't be written: {error.strerror}"

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class DecisionLog:
    """One sandbox' decisions: the last ones in memory, all of them in the file, up to its share."""

    def __init__(self, sandbox: str, file: DecisionFile, *, remembered: int = 1000, share: int = 100_000) -> None:
        self.sandbox, self._file, self._left = sandbox, file, share
        self.decisions: deque[Decision] = deque(maxlen=remembered)

    @property
    def refusal_reason(self) -> str | None:
        """Why nothing more may pass; None: it may."""
        if self._left <= 0:
            return "this sandbox' share of the log is used up"
        return self._file.broken or None

    def write(self, decision: Decision) -> None:
        self.decisions.append(decision)
        if self._left > 0:
            self._left -= 1
            self._file.write(decision)
