"""Observers of a running session: a terminal, an editor, a JSON stream. An observer never changes what the policy sees."""

from __future__ import annotations

from typing import Literal, Protocol

from etude.agent.policy.protocol import RetryWait
from etude.core.trace.entry import Entry

# "call" is a call as the model writes it, in its chat format's spelling.
Part = Literal["text", "thinking", "call"]


class AgentObserver(Protocol):
    """Receives the agent's progress. Its methods run on the agent's event loop, so they must not block."""

    def delta(self, part: Part, piece: str) -> None:
        """A piece of the turn that is being sampled. An empty piece voids the earlier ones, because a retry restarts the turn."""
        ...

    def entry(self, entry: Entry) -> None:
        """An entry was recorded."""
        ...

    def waiting(self, wait: RetryWait) -> None:
        """The policy waits before it retries the turn."""
        ...

    def idle(self, reason: str, message: str) -> None:
        """A request ended, as `reason` says, and the agent waits for the next one."""
        ...


class NullObserver:
    """An observer that does nothing, used by rollouts."""

    def delta(self, part: Part, piece: str) -> None: ...
    def waiting(self, wait: RetryWait) -> None: ...
    def entry(self, entry: Entry) -> None: ...
    def idle(self, reason: str, message: str) -> None: ...
