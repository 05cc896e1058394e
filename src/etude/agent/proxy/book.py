"""The sessions of one endpoint, by id and by key. Keys are shown once and kept as digests, in memory alone: they end with
the process, the sessions' files stay."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.policy.protocol import Policy
from etude.agent.proxy.ask import ProxyRequestError
from etude.agent.proxy.body import Bodies
from etude.agent.proxy.session import CaptureSession
from etude.agent.proxy.settings import CaptureSettings
from etude.core.trace.vocabulary import write_vocabulary

PREFIX = "etude-"  # so that a key is known for what it is where one turns up
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class SessionRegistry:
    """Opens, finds and ends sessions; they share the policy. A token policy needs its model's renderer; with a renderer a text
    policy's turns are recorded as the tokens of a demonstration."""

    def __init__(self, policy: Policy, settings: CaptureSettings, renderer: Renderer | None = None) -> None:
        if policy.takes_tokens and renderer is None:
            raise ValueError(f"the policy {policy.name} takes tokens: give the renderer of its model")
        self.policy = policy
        self.settings = settings
        self.renderer = renderer
        self.bodies = Bodies()
        self._sessions: dict[str, CaptureSession] = {}
        self._by_key: dict[str, CaptureSession] = {}
        settings.sessions.mkdir(parents=True, exist_ok=True)
        if renderer is not None:
            write_vocabulary(settings.sessions, renderer.vocabulary())

    def open(self, task_id: str = "") -> tuple[CaptureSession, str]:
        """A new session and its key. Raises Refused for a task id that can't be part of a file's name."""
        if task_id and not _NAME.fullmatch(task_id):
            raise ProxyRequestError(
                f"task_id {task_id[:80]!r} may hold letters, digits, '.', '_' and '-', at most 80 of them"
            )
        id = f"{task_id or 'capture'}-{time.time_ns():x}-{secrets.token_hex(2)}"
        session = CaptureSession(id, task_id, self.policy, self.renderer, self.settings)
        key = PREFIX + secrets.token_urlsafe(24)
        self._sessions[id] = self._by_key[_digest(key)] = session
        return session, key

    def of_key(self, key: str) -> CaptureSession:
        """The session that a key belongs to, ended or not. Raises Refused (401)."""
        session = self._by_key.get(_digest(key))
        if session is None:
            raise ProxyRequestError(
                "this key belongs to no session of this endpoint; make one with POST /sessions, or start the agent with "
                "etude capture run -- COMMAND (keys end with the endpoint's process)",
                401,
            )
        return session

    def of_id(self, id: str) -> CaptureSession:
        """A session by its id. Raises Refused (404)."""
        if id not in self._sessions:
            raise ProxyRequestError(f"no session {id!r} at this endpoint", 404)
        return self._sessions[id]

    async def close(self) -> list[dict[str, Any]]:
        """End every session that has not ended: as stopped. What they came to. One that can't be written does not keep the others
        from it; its error is raised when all have ended."""
        left = [session for session in self._sessions.values() if session.summary is None]
        ended = await asyncio.gather(*(session.end("stopped") for session in left), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in ended if not isinstance(outcome, BaseException)]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
