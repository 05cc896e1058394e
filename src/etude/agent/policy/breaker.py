"""Stops a whole bench when the endpoint is gone, instead of letting every task wait for it in turn.

A policy's own retries bridge bursts and restarts. What outlives them twice without an answer in between is an outage, or a key
that stopped working: the attempts in flight are dropped unscored, those that are written down stay.
"""

from __future__ import annotations

from etude.agent.policy.protocol import FatalStageError, Policy, PolicyError, Request, served_chat_of, window_of
from etude.core.trace.completion import Completion

# One lasting failure may be a single conversation that a server chokes on; two in a row without an answer are the server.
PATIENCE = 2


class EndpointGone(FatalStageError):
    """The endpoint stopped answering. Not a PolicyError: an attempt must not retry it."""


class Breaker:
    """A policy that raises EndpointGone once `inner` failed PATIENCE times in a row for reasons that are not the policy's."""

    def __init__(self, inner: Policy) -> None:
        self.name = inner.name
        self.takes_tokens = inner.takes_tokens
        self._inner = inner
        self._failures = 0

    @property
    def window_tokens(self) -> int | None:
        return window_of(self._inner)

    @property
    def served_chat(self) -> str:
        return served_chat_of(self._inner)

    async def complete(self, request: Request) -> Completion:
        try:
            answer = await self._inner.complete(request)
        except PolicyError as error:
            if not error.infra:
                self._failures = 0  # a refusal is an answer
                raise
            self._failures += 1
            if self._failures >= PATIENCE:
                raise EndpointGone(str(error)) from error
            raise
        self._failures = 0
        return answer

    async def release(self, session_id: str) -> None:
        await self._inner.release(session_id)
