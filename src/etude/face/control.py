"""How others speak to an agent that runs in the background: lines in a file, which it reads while it works.

A file rather than a socket: nobody has to be listening, what was said before a crash is still there, and no path is too long.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

from etude.harness.inbox import Inbox, InboxClosed
from etude.trace.message import Delivery

FILE = "inbox.jsonl"
# What a person notices as late; a look at a file's size costs microseconds.
LOOK_S = 0.1


class Control:
    """The agent's end. What the file held before it began was for an earlier run."""

    def __init__(self, folder: Path, inbox: Inbox) -> None:
        self._file = folder / FILE
        self._inbox = inbox
        self._read_bytes = self._file.stat().st_size if self._file.exists() else 0

    async def listen(self, idle: Callable[[], bool]) -> None:
        """Hands words on. Once the agent is idle and nobody has said more, the inbox is closed: the agent ends."""
        while True:
            if not self._take() and idle():
                self._inbox.close()  # what is queued is still answered
                return
            await asyncio.sleep(LOOK_S)

    def _take(self) -> bool:
        with open(self._file, "rb") if self._file.exists() else open(os.devnull, "rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.split(b"\n")[:-1]:
            row = json.loads(line)
            try:
                self._inbox.say(row["manner"], row["text"])
            except InboxClosed:
                return True
        return bool(whole)


def speak(folder: Path, manner: Delivery, text: str = "") -> None:
    """Say something to the agent of this folder."""
    line = json.dumps({"manner": manner, "text": text}).encode() + b"\n"
    fd = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
