"""Forwards one plain http request: written from its parsed parts, over one connection to the upstream each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h11

from etude.sandbox.egress.client import Client, Headers
from etude.sandbox.egress.dialer import STREAM_BYTES, Streams
from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.targets import HTTP_PORT, RequestTarget

# Of one connection only (RFC 9110, 7.6.1), or meant for the proxy.
_OF_THE_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"te", b"trailer", b"upgrade", b"expect")
)  # fmt: skip


async def forward(
    client: Client,
    request: h11.Request,
    target: RequestTarget,
    outer: Streams,
    count: Callable[[int, int], None],
    idle_s: float,
) -> int:
    """The status that the upstream gave. Raises Refused, OSError."""
    upstream = _Upstream(outer, idle_s)
    host = target.host if target.port == HTTP_PORT else f"{target.host}:{target.port}"
    headers = [pair for pair in _end_to_end(list(request.headers)) if pair[0] != b"host"]
    headers = [(b"host", host.encode()), *headers, (b"connection", b"close")]
    await upstream.send(h11.Request(method=request.method, target=target.path, headers=headers))
    async for piece in client.body():
        count(len(piece), 0)
        await upstream.send(h11.Data(data=piece))
    await upstream.send(h11.EndOfMessage())
    response = await upstream.response()
    status = response.status_code
    kept = _end_to_end(list(response.headers))
    await client.send(h11.Response(status_code=status, headers=kept, reason=response.reason))
    while isinstance(event := await upstream.event(), h11.Data):
        count(0, len(event.data))
        await client.send(h11.Data(data=event.data))
    await client.send(h11.EndOfMessage())
    return status


def _end_to_end(headers: Headers) -> Headers:
    """Without what belongs to one hop, named by the standard or by the message itself."""
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    named -= {b"content-length", b"transfer-encoding", b"host"}  # a client can't remove a length
    return [(name, value) for name, value in headers if name not in _OF_THE_HOP and name not in named]


class _Upstream:
    """The other end, read with the same patience. Its own faults are 502, its silence is 504."""

    def __init__(self, streams: Streams, idle_s: float) -> None:
        self._reader, self._writer = streams
        self._idle_s = idle_s
        self._parser = h11.Connection(h11.CLIENT)

    async def send(self, event: h11.Event) -> None:
        self._writer.write(self._parser.send(event) or b"")
        try:
            async with asyncio.timeout(self._idle_s):
                await self._writer.drain()
        except TimeoutError:
            raise RequestRefused(504, "the upstream does not read") from None

    async def response(self) -> h11.Response:
        while isinstance(event := await self.event(), h11.InformationalResponse):
            continue
        if not isinstance(event, h11.Response):
            raise RequestRefused(502, "the upstream closed without an answer")
        return event

    async def event(self) -> h11.Event:
        try:
            while (event := self._parser.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(self._idle_s):
                    self._parser.receive_data(await self._reader.read(STREAM_BYTES))
        except h11.RemoteProtocolError as error:
            raise RequestRefused(502, f"the upstream broke the protocol: {error}") from None
        except TimeoutError:
            raise RequestRefused(504, f"the upstream was silent for {self._idle_s:g} s") from None
        if not isinstance(event, h11.Event):
            raise RequestRefused(502, "the upstream went on after its answer")
        return event
