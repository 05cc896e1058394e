"""What an egress proxy serves itself, in addition to forwarding: a service under a path of its own, such as a package index."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class ServiceRequest:
    """A request for a service: GET or HEAD, its path below the service's own (decoded), what the client accepts."""

    path: str
    accept: str = ""


@dataclass(frozen=True)
class ServiceResponse:
    """An answer: `body` whole, or `stream` in pieces, of `size` bytes in all where that is known."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    stream: AsyncGenerator[bytes, None] | None = field(default=None, compare=False)
    size: int | None = None


class ProxyService(Protocol):
    """Raises Refused for what it does not give."""

    name: str

    async def serve(self, ask: ServiceRequest) -> ServiceResponse: ...
