"""What the server asks of a wire format."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from etude.agent.policy.wire.answer_stream import WireStream
from etude.agent.proxy.ask import Ask
from etude.core.trace.completion import Completion


class Dialect(Protocol):
    """Pure: bodies in, bodies out."""

    name: str
    ended: bytes  # what is sent behind the last event

    def read(self, body: dict[str, Any], allowed: Collection[str]) -> Ask:
        """A request's body. Raises Refused, naming the field, for what can't be honoured or read."""
        ...

    def answer(self, answer: Completion, *, id: str, ask: Ask) -> dict[str, Any]:
        """The body that answers."""
        ...

    def stream(self, *, id: str, ask: Ask) -> WireStream:
        """Writes the answer's events."""
        ...

    def frame(self, event: dict[str, Any]) -> bytes:
        """One of them as it is sent."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body of an error response."""
        ...

    def broken(self, status: int, message: str) -> bytes:
        """An error within a stream that has begun."""
        ...
