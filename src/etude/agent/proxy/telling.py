"""The part of a turn that was sent so far: the pieces of one sampling, for all clients that wait for it."""

from __future__ import annotations

import asyncio
from typing import Literal

from etude.agent.policy.wire.answer_stream import SentText, TurnPart
from etude.core.trace.message import Message


class TurnDeltas:
    """Filled by the policy, on the event loop. Pieces of calls are left out: calls are sent when all of them are read."""

    def __init__(self) -> None:
        self.pieces: list[tuple[TurnPart, str]] = []
        self.attempt = 0  # a policy that starts a turn again voids the pieces before it
        self.news = asyncio.Event()  # set, and another one made, when there is more

    def add(self, part: Literal["text", "thinking", "call"], piece: str) -> None:
        """A policy's `on_delta`."""
        if part == "call":
            return
        if not piece:
            self.pieces = []
            self.attempt += 1
        else:
            self.pieces.append((part, piece))
        self.news.set()
        self.news = asyncio.Event()

    def heard(self, message: Message) -> Message:
        """The turn as a client has it that was sent these pieces and then the rest."""
        heard = SentText()
        for part, piece in self.pieces:
            heard.add(part, piece)
        return heard.message(message)
