"""What a person says while the agent works. Three ways in:

    steer   heard before the policy's next turn, in the middle of the work
    queue   the next request, heard when the agent has answered this one
    stop    the turn that runs is broken off, and the request is over

The harness takes words out only at turn boundaries, so a session records exactly what the policy heard and when. An inbox that is
closed from the start (`Inbox.closed()`) is that of a rollout: nobody is there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal

Manner = Literal["steer", "queue", "stop"]


class InboxClosed(Exception):
    """Words for an agent that listens no more."""


class Inbox:
    """One session's. Used from one event loop; `say` may be called by any of its tasks."""

    def __init__(self) -> None:
        self._steered: deque[str] = deque()
        self._queued: deque[str] = deque()
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._closed = False

    @classmethod
    def closed(cls) -> Inbox:
        """Nobody will ever say anything."""
        inbox = cls()
        inbox.close()
        return inbox

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def say(self, manner: Manner, text: str = "") -> None:
        """Raises InboxClosed after `close`, and ValueError for an empty message."""
        if self._closed:
            raise InboxClosed("the session is over; resume it with `etude agent --resume ID`")
        if manner == "stop":
            self._stop.set()
            return
        if not text.strip():
            raise ValueError(f"an empty message can't {manner} an agent: say what it should do")
        (self._steered if manner == "steer" else self._queued).append(text)
        self._changed.set()

    def steered(self) -> list[str]:
        """What was said to be heard now; it is taken out."""
        said = list(self._steered)
        self._steered.clear()
        return said

    async def next_request(self) -> str | None:
        """What was queued first, or else what was said too late to steer; waits for it. None once the inbox is closed and empty."""
        while True:
            self._stop.clear()  # it ended the request before, not the one to come
            for words in (self._queued, self._steered):
                if words:
                    return words.popleft()
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()

    async def stopped(self) -> None:
        """Returns when somebody says stop."""
        await self._stop.wait()

    def close(self) -> None:
        """Nothing more will be said: the session ends with the answer to what is queued."""
        self._closed = True
        self._changed.set()
