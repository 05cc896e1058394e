"""What a person says while the agent works. Three ways in:

    steer   heard before the policy's next turn, in the middle of the work
    queue   the next request, heard when the agent has answered this one
    stop    the turn that runs is broken off, and the request is over

and a wish, `summarize`: the agent sums up what it holds before its next turn, or at once if it waits.

The harness takes words out only at turn boundaries, so a session records exactly what the policy heard and when. An inbox that is
closed from the start (`Inbox.closed()`) is that of a rollout: nobody is there.
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
    """Words for an agent that listens no more."""


class Stopped(Exception):
    """A person broke off what was running. Control flow: it never leaves the agent."""


@dataclass(frozen=True)
class Summarize:
    """The person wants what is held summed up now; `words`: what matters to them."""

    words: str = ""


class Inbox:
    """One session's. Used from one event loop; `say` may be called by any of its tasks."""

    def __init__(self) -> None:
        self._steered: deque[str] = deque()
        self._queued: deque[str] = deque()
        self._summary: Summarize | None = None
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._closed = self._deaf = False

    @classmethod
    def closed(cls) -> Inbox:
        """Nobody will ever say anything, not even stop."""
        inbox = cls()
        inbox.close()
        inbox._deaf = True
        return inbox

    @property
    def waiting(self) -> bool:
        """Words were said that nobody has taken out."""
        return bool(self._steered or self._queued)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def say(self, manner: Delivery, text: str = "") -> None:
        """Raises InboxClosed after `close`, and ValueError for an empty message."""
        if self._closed and (self._deaf or manner != "stop"):
            raise InboxClosed("the session is over; resume it with `etude agent --resume ID`")
        if manner == "stop":
            self._stop.set()
            return
        if not text.strip():
            raise ValueError(f"an empty message can't {manner} an agent: say what it should do")
        (self._steered if manner == "steer" else self._queued).append(text)
        self._changed.set()

    def summarize(self, words: str = "") -> None:
        """Sum up as soon as may be. Raises InboxClosed after `close`."""
        if self._closed:
            raise InboxClosed("the session is over; resume it with `etude agent --resume ID`")
        self._summary = Summarize(words.strip())
        self._changed.set()

    def summary_asked(self) -> Summarize | None:
        """The person's wish; it is taken out."""
        asked, self._summary = self._summary, None
        return asked

    def steered(self) -> list[str]:
        """What was said to be heard now; it is taken out."""
        said = list(self._steered)
        self._steered.clear()
        return said

    async def next_request(self) -> str | Summarize | None:
        """What was queued first, or else what was said too late to steer, or else a summary that is wished for; waits for it. None
        once the inbox is closed and empty."""
        while True:
            self._stop.clear()  # it ended the request before, not the one to come
            for words in (self._queued, self._steered):
                if words:
                    return words.popleft()
            if (asked := self.summary_asked()) is not None:
                return asked
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives. Raises Stopped, with `work` cancelled and over, once somebody says stop."""
        if self._deaf:
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
            raise Stopped
        return running.result()

    async def turn(self, work: Coroutine[Any, Any, T]) -> T:
        """`unless_stopped` for the policy's turn."""
        return await self.unless_stopped(work)

    def close(self) -> None:
        """Nothing more will be said but perhaps stop: the session ends with the answer to what is queued."""
        self._closed = True
        self._changed.set()
