"""How others speak to an agent that runs in the background: lines in a file, which it reads while it works, and says how far it has heard.

A file rather than a socket: nobody has to be listening, what was said before a crash is still there, and no path is too long. The file
belongs to one run: whoever starts the agent clears it first (`clear`), so that words for a process that is still starting are heard.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from etude.agent.harness.inbox import Inbox, InboxClosed
from etude.core.trace.message import Delivery

# Words, or the wish that the agent sums up.
Manner = Literal[Delivery, "compact"]
FILE = "inbox.jsonl"
HEARD = "inbox.heard"
# What a person notices as late; a look at a file's size costs microseconds.
LOOK_S = 0.1


class Control:
    """The agent's end."""

    def __init__(self, folder: Path, inbox: Inbox) -> None:
        self._folder = folder
        self._inbox = inbox
        self._heard_bytes = 0

    async def listen(self, idle: Callable[[], bool]) -> None:
        """Hands words on. Once the agent is idle and nobody has said more, the inbox is closed: the agent ends."""
        while True:
            if not self._take() and idle():
                self._inbox.close()  # what is queued is still answered
                return
            await asyncio.sleep(LOOK_S)

    def _take(self) -> bool:
        """Whether there was anything. What the inbox took is acknowledged, and nothing else."""
        file = self._folder / FILE
        if not file.exists():
            return False
        with open(file, "rb") as opened:
            opened.seek(self._heard_bytes)
            data = opened.read()
        lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        for line in lines:
            try:
                self._hand_on(json.loads(line))
            except InboxClosed:
                return True
            self._heard_bytes += len(line)
            self._acknowledge()
        return bool(lines)

    def _hand_on(self, row: dict[str, str]) -> None:
        if row["manner"] == "compact":
            self._inbox.summarize(row["text"])
        else:
            self._inbox.say(row["manner"], row["text"])  # type: ignore[arg-type]

    def _acknowledge(self) -> None:
        side = self._folder / f"{HEARD}.tmp"
        side.write_text(str(self._heard_bytes))
        side.replace(self._folder / HEARD)


def speak(folder: Path, manner: Manner, text: str = "") -> int:
    """Say something to the agent of this folder. It was heard once `heard` is this number."""
    line = json.dumps({"manner": manner, "text": text}).encode() + b"\n"
    fd = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line)
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


def heard(folder: Path) -> int:
    """How many bytes of what was said the agent has taken in."""
    file = folder / HEARD
    return int(file.read_text()) if file.exists() else 0


def clear(folder: Path) -> None:
    """Before a run starts: what was said to an earlier one is not for it."""
    for name in (FILE, HEARD):
        (folder / name).unlink(missing_ok=True)
