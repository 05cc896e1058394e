"""The log of an MCP server: what it writes to stderr, what on stdout is no message, and what the SDK has to say about either.

One file a server, `mcp/NAME.log` next to the folder of sessions: a person who looks for a reason finds it there, and none of it reaches
their terminal.
"""

from __future__ import annotations

import contextvars
import logging
import os
import re
import tempfile
from pathlib import Path
from typing import TextIO

from etude.agent.git_links.home import sessions_home
from etude.core.redact.keys import mask_keys

# A log that is larger begins again when its server starts.
MAX_BYTES = 1 << 20
_TAIL_BYTES = 4096  # enough for the line that says why
# The loggers of the SDK, by the names that it gives them.
_LOGGERS = ("mcp", "client")
_current: contextvars.ContextVar[TextIO | None] = contextvars.ContextVar("mcp_log", default=None)


def log_folder() -> Path:
    """Where the logs of servers lie."""
    return sessions_home().parent / "mcp"


def log_file(server: str) -> Path:
    """The log of the server with this name."""
    return log_folder() / f"{re.sub(r'[^A-Za-z0-9._-]', '_', server)[:80]}.log"


class ServerLog:
    """One start of one server. `stream` takes its stderr; where no file can be written, a temporary one."""

    def __init__(self, server: str) -> None:
        self.stream = _opened(log_file(server))
        self._start = self.stream.seek(0, os.SEEK_END)

    def hear_sdk(self) -> None:
        """In this task, and those that it starts, the SDK's own lines go here and nowhere else."""
        _current.set(self.stream)
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            if not any(isinstance(handler, _ToServerLog) for handler in logger.handlers):
                logger.addHandler(_ToServerLog())
                logger.propagate = False

    def last_line(self) -> str:
        """The last line that was written since the start."""
        self.stream.flush()
        end = self.stream.seek(0, os.SEEK_END)
        self.stream.seek(max(self._start, end - _TAIL_BYTES))
        rows = [row.strip() for row in self.stream.read().splitlines() if row.strip()]
        return rows[-1][:300] if rows else ""

    def close(self) -> None:
        self.stream.close()


class _ToServerLog(logging.Handler):
    """Writes to the log of the server whose task logs; a line of no server is dropped, as it concerns none that runs."""

    def emit(self, record: logging.LogRecord) -> None:
        stream = _current.get()
        if stream is None or stream.closed:
            return
        cause = record.exc_info[1] if record.exc_info else None
        words = " ".join(str(cause).split())[:600] if cause is not None else ""
        stream.write(mask_keys(f"{record.getMessage()}{': ' if words else ''}{words}") + "\n")
        stream.flush()


def _opened(file: Path) -> TextIO:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        if os.fstat(descriptor).st_size > MAX_BYTES:
            os.truncate(descriptor, 0)
        return open(descriptor, "a+", errors="replace")
    except OSError:
        return tempfile.TemporaryFile("w+", errors="replace")
