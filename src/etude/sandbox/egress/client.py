"""The sandbox' side of one connection: heads read strictly, bodies as they come, answers.

Promise: two readers can't understand a head differently. Line ends are CRLF, no header is folded, a body has one length or chunks, never both,
and only one Host is named; what h11 repairs (it joins folded lines and takes bare LF) is refused before it sees it. Every request is parsed
by a fresh parser, and what is forwarded is written from the parsed parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus

import h11

from etude.sandbox.egress.dialer import STREAM_BYTES
from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.limits import ProxyLimits

Headers = list[tuple[bytes, bytes]]

_END = b"\r\n\r\n"
_LINGER_S, _LINGER_BYTES = (
    1.0,
    1 << 20,
)  # for a client that is still sending while it is refused, or it would never read why


class Client:
    """`answered`: an answer has begun, so there is no room for another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ProxyLimits) -> None:
        self.reader, self.writer, self._limits = reader, writer, limits
        self._ahead = bytearray()  # read, not yet parsed
        self._parser = h11.Connection(h11.SERVER)
        self.answered = False

    async def head(self) -> h11.Request | None:
        """The next request; None when the client has nothing more to say. Raises Refused."""
        raw = await self._raw_head()
        if raw is None:
            return None
        _inspect(raw)
        self.answered = False
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_bytes)
        try:
            self._parser.receive_data(raw)
            request = self._parser.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestRefused(error.error_status_hint, f"malformed request: {error}") from None
        if not isinstance(request, h11.Request):
            raise RequestRefused(400, "malformed request")
        _one_reading(request, raw)
        return request

    async def body(self) -> AsyncIterator[bytes]:
        """Raises Refused for broken chunks, h11.RemoteProtocolError never."""
        if self._parser.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            try:
                event = self._parser.next_event()
                if event is h11.NEED_DATA:
                    self._parser.receive_data(await self._more(self._limits.idle_s))
                elif isinstance(event, h11.Data):
                    yield bytes(event.data)
                else:
                    return
            except h11.RemoteProtocolError as error:
                raise RequestRefused(400, f"malformed body: {error}") from None

    async def send(self, *events: h11.Event) -> None:
        """Waits while the client does not read. Raises Refused after `idle_s` of that."""
        for event in events:
            self.answered = self.answered or isinstance(event, h11.Response)
            self.writer.write(self._parser.send(event) or b"")
        await self.drain()

    async def drain(self) -> None:
        try:
            async with asyncio.timeout(self._limits.idle_s):
                await self.writer.drain()
        except TimeoutError:
            raise RequestRefused(408, "the client does not read") from None

    def switch_to_bytes(self) -> bytes:
        """After a tunnel's 200: what the client has sent already."""
        return bytes(self._parser.trailing_data[0]) + self._take_ahead()

    def goes_on(self) -> bool:
        """Whether another request may come over this connection."""
        done = self._parser.our_state is h11.DONE and self._parser.their_state is h11.DONE
        if done:
            self._ahead[:0] = self._parser.trailing_data[0]
        return done

    async def refuse(self, refusal: RequestRefused) -> None:
        """Say why, and end. Nothing is said in the middle of an answer."""
        if self.answered:
            return
        text = f"etude: {refusal.reason}\n".encode()
        line = f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n"
        fields = f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        self.answered = True
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                self.writer.write((line + fields).encode() + text)
                await self.writer.drain()
                self.writer.write_eof()
                left = _LINGER_BYTES
                while left > 0 and (data := await self.reader.read(STREAM_BYTES)):
                    left -= len(data)

    async def _raw_head(self) -> bytes | None:
        try:
            if not self._ahead:
                async with asyncio.timeout(self._limits.idle_s):
                    first = await self.reader.read(STREAM_BYTES)
                if not first:
                    return None
                self._ahead += first
        except TimeoutError:
            return None  # between requests no answer is due
        try:
            async with asyncio.timeout(self._limits.head_s):
                while (end := self._ahead.find(_END)) < 0:
                    if len(self._ahead) > self._limits.head_bytes:
                        raise RequestRefused(431, f"a head of more than {self._limits.head_bytes} bytes")
                    more = await self._more(self._limits.idle_s)
                    if not more:
                        raise RequestRefused(400, "the connection ended within a head")
                    self._ahead += more
        except TimeoutError:
            raise RequestRefused(408, f"no whole head within {self._limits.head_s:g} s") from None
        if end > self._limits.head_bytes:
            raise RequestRefused(431, f"a head of more than {self._limits.head_bytes} bytes")
        return bytes(self._ahead[: end + len(_END)]) + self._take_ahead(end + len(_END))

    def _take_ahead(self, start: int = 0) -> bytes:
        rest = bytes(self._ahead[start:])
        self._ahead.clear()
        return rest

    async def _more(self, patience_s: float) -> bytes:
        try:
            async with asyncio.timeout(patience_s):
                return await self.reader.read(STREAM_BYTES)
        except TimeoutError:
            raise RequestRefused(408, f"not a byte for {patience_s:g} s") from None


def _inspect(raw: bytes) -> None:
    """What h11 would repair or pass on."""
    head = raw[: raw.index(_END)]
    lines = head.split(b"\r\n")
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise RequestRefused(400, "malformed request: a line that does not end with CRLF, or a zero byte")
    if any(line[:1] in (b" ", b"\t") for line in lines):
        raise RequestRefused(400, "malformed request: a folded header")


def _one_reading(request: h11.Request, raw: bytes) -> None:
    # h11 makes one of two lengths that agree: counted where they were written.
    names = [line.partition(b":")[0].strip().lower() for line in raw[: raw.index(_END)].split(b"\r\n")[1:]]
    lengths = names.count(b"content-length") + names.count(b"transfer-encoding")
    if lengths > 1 or (lengths and request.method == b"CONNECT"):
        raise RequestRefused(400, "malformed request: more than one length of its body")
    if request.http_version not in (b"1.0", b"1.1"):
        raise RequestRefused(505, "a version of HTTP other than 1.0 and 1.1")
    if b"transfer-encoding" in names and request.http_version == b"1.0":
        raise RequestRefused(400, "malformed request: chunks before HTTP/1.1")
