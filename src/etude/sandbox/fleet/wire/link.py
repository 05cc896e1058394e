"""The one thing that a wire must do, whatever carries it."""

from __future__ import annotations

from typing import Any, Protocol

# (true, the value) or (false, the error): typed errors arrive as what they were, whatever the carrier does to exceptions.
Answer = tuple[bool, Any]


class Link(Protocol):
    async def ask(self, method: str, *args: Any, **named: Any) -> Answer:
        """Have `HostServer.ask` called at the other end. Raises HostLost where that has ended, AnswerLost where nothing came back."""
        ...

    async def close(self) -> None: ...
