"""What the tests of this room share: a token policy in front of a script, an agent without a socket, a served endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from etude.agent.policy.protocol import Request
from etude.agent.proxy.ask import Ask
from etude.agent.proxy.book import SessionRegistry
from etude.agent.proxy.session import CaptureSession
from etude.agent.proxy.settings import CaptureSettings
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.reader import read_session
from etude.core.trace.schema import check_file
from etude.core.trace.session import Session

BASH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def run(command: str, thinking: str = "") -> Message:
    """A turn that calls bash."""
    return Message("assistant", "", thinking, (ToolCall("x", "bash", {"command": command}),))


class TokenPolicy:
    """Says what a function of the request says, as ids with a provenance of its own: the n-th answer has version n."""

    takes_tokens = True
    name = "scripted-tokens"

    def __init__(self, renderer: Any, script: Callable[[Request], Message]) -> None:
        self._renderer = renderer
        self._script = script
        self.requests: list[Request] = []
        self.released: list[str] = []
        self.cancelled = 0
        self.gate: asyncio.Event | None = None

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        said = self._script(request)
        ids = self._renderer.answer(said, first_call=sum(len(m.calls) for m in request.messages))
        return Completion(tokens=SampledTokens(ids, [-0.5] * len(ids), [len(self.requests)] * len(ids)))

    async def release(self, session_id: str) -> None:
        self.released.append(session_id)


class Agent:
    """An agent that keeps its messages and asks a session."""

    def __init__(self, tmp_path: Path, policy: Any, renderer: Any = None, **settings: Any) -> None:
        self.session = CaptureSession("s", "", policy, renderer, CaptureSettings(tmp_path, **settings))

    async def ask(self, *messages: Message, tools: tuple[dict[str, Any], ...] = (BASH,)) -> Message:
        answer = await self.session.answer(Ask("m", messages, tools), {"dialect": "test", "agent": "test"})
        assert answer.message is not None
        return answer.message

    async def end(self) -> tuple[dict[str, Any], Session]:
        """The summary, and the session as a reader finds it."""
        summary = await self.session.end()
        assert check_file(self.session.path) == []
        return summary, read_session(self.session.path)


@dataclass
class Endpoint:
    """A served book."""

    address: str
    book: SessionRegistry
    http: httpx.AsyncClient

    async def session(self, **fields: Any) -> tuple[CaptureSession, str]:
        """A new session, made over the wire, and its key."""
        made = (await self.http.post("/sessions", json=fields)).json()
        return self.book.of_id(made["id"]), made["key"]


Serve = Callable[..., AbstractAsyncContextManager[Endpoint]]
