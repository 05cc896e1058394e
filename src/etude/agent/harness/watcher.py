"""Who looks on while a session grows: a terminal, an editor, a JSON stream. Looking on never changes what the policy sees."""

from __future__ import annotations

from typing import Literal, Protocol

from etude.agent.policy.protocol import Wait
from etude.core.trace.entry import Entry

# "call" is a call as the model writes it, in its chat format's spelling.
Part = Literal["text", "thinking", "call"]


class AgentObserver(Protocol):
    """Called on the agent's event loop, so it must not block."""

    def delta(self, part: Part, piece: str) -> None:
        """A piece of the turn that is being sampled; an empty one: forget those before it, a retry begins the turn anew."""
        ...

    def entry(self, entry: Entry) -> None:
        """Something happened and is recorded."""
        ...

    def waiting(self, wait: Wait) -> None:
        """The policy waits before it asks for the turn again."""
        ...

    def idle(self, reason: str, message: str) -> None:
        """A request is answered (or given up: `reason` says how it ended), and the agent waits for the next."""
        ...


class NullObserver:
    """The watcher of a rollout."""

    def delta(self, part: Part, piece: str) -> None: ...
    def waiting(self, wait: Wait) -> None: ...
    def entry(self, entry: Entry) -> None: ...
    def idle(self, reason: str, message: str) -> None: ...
