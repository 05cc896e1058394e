"""A pseudo-terminal of 80 columns with the agent on it: typed at, read as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app_lab import COMMAND

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>])|\r")


class Screen:
    """What was shown, without the codes that move the cursor; `raw` has them."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self.terminal, self.process, self.raw = terminal, process, ""

    @property
    def text(self) -> str:
        return _ESCAPES.sub("", self.raw)

    def until(self, *wanted: str, seconds: float = 60.0) -> None:
        """The limit is for a machine that other tests keep busy."""
        until_s = time.monotonic() + seconds
        while not all(words in self.text for words in wanted):
            assert time.monotonic() < until_s, f"{wanted} not in:\n{self.text}"
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    self.raw += os.read(self.terminal, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    assert all(words in self.text for words in wanted), f"{wanted} not in:\n{self.text}"

    def type(self, words: str, end: str = "\r") -> None:
        os.write(self.terminal, (words + end).encode())

    def forget(self) -> None:
        self.raw = ""


@contextmanager
def terminal(folder: Path, *words: str, **variables: str) -> Iterator[Screen]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in variables else None
    process = subprocess.Popen(
        [*COMMAND, "agent", *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Screen(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)
