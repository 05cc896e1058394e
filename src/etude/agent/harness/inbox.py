"""The user's messages to a working agent. A message is delivered in one of three ways:

    steer   read before the policy's next turn, in the middle of the work
    queue   the next request, read when the agent has answered the current one
    stop    interrupts the current turn and ends the request

A request to summarize (`summarize`) is done before the next turn, or at once if the agent is idle.

The harness takes messages out only at turn boundaries, so a session records exactly what the policy read and when. A rollout has no user
and uses an inbox that is closed from the start (`Inbox.closed()`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from etude.core.trace.message import Delivery

T = TypeVar("T")


class InboxClosed(Exception):
    """A message to an agent that has ended."""


class TurnInterrupted(Exception):
    """The user interrupted the turn. Control flow: it never leaves the agent."""


@dataclass(frozen=True)
class SummaryRequest:
    """The user's request to summarize the conversation now. `words` says what the summary should keep."""

    words: str = ""


class Inbox:
    """The inbox of one session. It is used from one event loop; any of its tasks may call `say`."""

    def __init__(self) -> None:
        self._steered: deque[str] = deque()
        self._queued: deque[str] = deque()
        self._summary: SummaryRequest | None = None
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._closed = self._accepts_nothing = False

    @classmethod
    def closed_inbox(cls) -> Inbox:
        """An inbox that accepts no message, not even a stop."""
        inbox = cls()
        inbox.close()
        inbox._accepts_nothing = True
        return inbox

    @property
    def waiting(self) -> bool:
        """Whether messages have not been taken out yet."""
        return bool(self._steered or self._queued)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def say(self, manner: Delivery, text: str = "") -> None:
        """Raises InboxClosed after `close`, and ValueError for an empty message."""
        if self._closed and (self._accepts_nothing or manner != "stop"):
            raise InboxClosed("the session is over; resume it with `etude agent --resume ID`")
        if manner == "stop":
            self._stop.set()
            return
        if not text.strip():
            raise ValueError(f"an empty message can't {manner} an agent: say what it should do")
        (self._steered if manner == "steer" else self._queued).append(text)
        self._changed.set()

    def summarize(self, words: str = "") -> None:
        """Request a summary as soon as possible. Raises InboxClosed after `close`."""
        if self._closed:
            raise InboxClosed("the session is over; resume it with `etude agent --resume ID`")
        self._summary = SummaryRequest(words.strip())
        self._changed.set()

    def summary_asked(self) -> SummaryRequest | None:
        """Take out the request for a summary."""
        request, self._summary = self._summary, None
        return request

    def take_steering(self) -> list[str]:
        """Take out the steering messages."""
        messages = list(self._steered)
        self._steered.clear()
        return messages

    async def next_request(self) -> str | SummaryRequest | None:
        """Wait for the next request: the first queued message, else a steering message that came too late, else a request to summarize.

        Returns None once the inbox is closed and empty.
        """
        while True:
            self._stop.clear()  # it ended the request before, not the one to come
            for words in (self._queued, self._steered):
                if words:
                    return words.popleft()
            if (request := self.summary_asked()) is not None:
                return request
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result. On a stop, cancel it, wait for its end, and raise TurnInterrupted."""
        if self._accepts_nothing:
            return await work
        running, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((running, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait((running,))
        if running.cancelled():
            raise TurnInterrupted
        return running.result()

    async def turn(self, work: Coroutine[Any, Any, T]) -> T:
        """`unless_stopped` for the policy's turn."""
        return await self.unless_stopped(work)

    def close(self) -> None:
        """Accept no more messages except stop. The session ends with the answer to the last queued message."""
        self._closed = True
        self._changed.set()
