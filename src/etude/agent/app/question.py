"""A question, answered in a line: may a call run, y, a(lways), or n with a reason that the agent is told; may a server start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from etude.agent.app.teller import plain
from etude.agent.harness.approval import Asked, Effect
from etude.agent.harness.mcp.server import Server
from etude.core.trace.message import ToolCall

# Of a value that is shown with the question: a person must see what they allow.
SHOWN_CHARS = 600


class Question:
    """One at a time: calls are ruled on one after the other, and servers start before any call."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._asked: asyncio.Future[Asked] | None = None

    @property
    def open(self) -> bool:
        return self._asked is not None and not self._asked.done()

    async def ask(self, call: ToolCall, effect: Effect) -> Asked:
        """Wait for the person's answer; a stop takes the question back."""
        values = "\n".join(f"    {name}: {plain(_short(value))}" for name, value in call.arguments.items())
        return await self._answer(
            f"? {call.name} ({effect})\n{values}\n  allow it? y · a(lways, for this session) · n REASON"
        )

    async def approve(self, server: Server) -> bool:
        """Whether a server that the project describes may start; a yes is remembered for this project."""
        shown = plain(f"{server.name}, as {server.source} has it, with your rights:\n    {_short(server.shown)}")
        asked = await self._answer(f"? start the MCP server {shown}\n  allow it? y (from now on in this project) · n")
        return asked.answer != "deny"

    async def _answer(self, question: str) -> Asked:
        self._asked = asyncio.get_running_loop().create_future()
        self._say(question)
        try:
            return await self._asked
        finally:
            self._asked = None

    def answer(self, words: str) -> None:
        """What else is said asks again: a slip must not allow anything."""
        assert self._asked is not None and not self._asked.done()
        first, _, rest = words.strip().partition(" ")
        if first.lower() in ("y", "yes"):
            found = Asked("once")
        elif first.lower() in ("a", "always"):
            found = Asked("session")
        elif first.lower() in ("n", "no"):
            found = Asked("deny", rest.strip() or "the person said no")
        else:
            self._say("y, a(lways) or n REASON")
            return
        self._asked.set_result(found)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text) - SHOWN_CHARS} more characters)"
