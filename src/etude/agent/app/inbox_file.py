"""Messages to a background agent: lines in a file, which the agent polls. It acknowledges by writing how many bytes it has read.

A file has three advantages over a socket: no listener is needed, messages survive a crash, and the length of its path is not limited.
The file belongs to one run. The process that starts the agent clears it first (`clear_inbox`), so that messages to an agent that is
still starting are kept.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from etude.agent.harness.inbox import Inbox, InboxClosed
from etude.core.files import replace_file
from etude.core.trace.message import Delivery

# A message's delivery, or "compact": a request that the agent summarizes its context.
MessageKind = Literal[Delivery, "compact"]
FILE = "inbox.jsonl"
ACKNOWLEDGED = "inbox.heard"
# A person notices a longer delay. Reading a file's size costs microseconds.
POLL_S = 0.1


class InboxReader:
    """The agent's side: moves messages from the file into its inbox."""

    def __init__(self, folder: Path, inbox: Inbox) -> None:
        self._folder = folder
        self._inbox = inbox
        self._read_bytes = 0

    async def listen(self, idle: Callable[[], bool]) -> None:
        """Deliver messages until the agent is idle and no message is left. Then close the inbox, which ends the agent."""
        while True:
            if not self._read_new() and idle():
                self._inbox.close()  # what is queued is still answered
                return
            await asyncio.sleep(POLL_S)

    def _read_new(self) -> bool:
        """Return whether there were new messages. Only messages that the inbox accepted are acknowledged."""
        file = self._folder / FILE
        if not file.exists():
            return False
        with open(file, "rb") as opened:
            opened.seek(self._read_bytes)
            data = opened.read()
        lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        for line in lines:
            try:
                self._deliver(json.loads(line))
            except InboxClosed:
                return True
            self._read_bytes += len(line)
            self._acknowledge()
        return bool(lines)

    def _deliver(self, row: dict[str, str]) -> None:
        if row["manner"] == "compact":
            self._inbox.summarize(row["text"])
        else:
            self._inbox.say(row["manner"], row["text"])  # type: ignore[arg-type]

    def _acknowledge(self) -> None:
        replace_file(self._folder / ACKNOWLEDGED, str(self._read_bytes))


def write_message(folder: Path, manner: MessageKind, text: str = "") -> int:
    """Write a message to the agent of this folder. Once `acknowledged_bytes` reaches the returned number, the agent has read it."""
    line = json.dumps({"manner": manner, "text": text}).encode() + b"\n"
    fd = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line)
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


def acknowledged_bytes(folder: Path) -> int:
    """How many bytes of the file the agent has read."""
    file = folder / ACKNOWLEDGED
    return int(file.read_text()) if file.exists() else 0


def clear_inbox(folder: Path) -> None:
    """Delete messages to an earlier run, before a run starts."""
    for name in (FILE, ACKNOWLEDGED):
        (folder / name).unlink(missing_ok=True)
