"""Bodies of requests as they arrive: each within a time and a size, all that have not arrived yet within a sum.

Anybody who reaches the endpoint may begin a body, so none may hold a connection or memory for long without having sent it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request

from etude.agent.proxy.ask import ProxyRequestError
from etude.core.trace.plain_json import parse

# A conversation of a million tokens is some megabytes of text.
MAX_BODY_BYTES = 64 << 20
# Of all bodies that are still arriving.
MAX_HELD_BYTES = 256 << 20
# Agents send a body at once. What has arrived earns more time, so that a slow line is no fault.
BODY_S = 30.0
LEAST_BYTES_PER_S = 256 << 10


class Bodies:
    """Those of one endpoint."""

    def __init__(self) -> None:
        self.held_bytes = 0

    async def read(self, request: Request) -> bytes:
        """The body. Raises Refused for one that is too long or too slow, and for one sent as another type than JSON: a web page may
        send those to any address without asking."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ProxyRequestError(f"the content-type is {kind or 'missing'}; send application/json", 415)
        data = bytearray()
        try:
            start = asyncio.get_running_loop().time()
            async with asyncio.timeout(BODY_S) as limit:
                async for piece in request.stream():
                    self.held_bytes += len(piece)
                    data += piece
                    limit.reschedule(start + BODY_S + len(data) / LEAST_BYTES_PER_S)
                    self._check(len(data))
        except TimeoutError:
            raise ProxyRequestError(f"the body did not arrive in time; send it within {BODY_S:g} s", 408) from None
        finally:
            self.held_bytes -= len(data)
        return bytes(data)

    def _check(self, size: int) -> None:
        if size > MAX_BODY_BYTES:
            raise ProxyRequestError(
                f"the body is longer than {MAX_BODY_BYTES >> 20} MiB; shorten the conversation", 413
            )
        if self.held_bytes > MAX_HELD_BYTES:
            raise ProxyRequestError(
                f"bodies of {MAX_HELD_BYTES >> 20} MiB are arriving already; try again in a moment", 503
            )


def parse_body(data: bytes) -> dict[str, Any]:
    """A body. Raises Refused for what is no JSON object."""
    try:
        body = parse(data)
    except ValueError as error:
        raise ProxyRequestError(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise ProxyRequestError(f"the body is a JSON {type(body).__name__}; send an object")
    return body
