"""One connection from a sandbox: its requests one after the other, each a decision, each recorded once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from urllib.parse import unquote

import h11

from etude.sandbox.egress import targets
from etude.sandbox.egress.client import Client
from etude.sandbox.egress.decisions import Decision, DecisionLog, cut
from etude.sandbox.egress.dialer import STREAM_BYTES, Dialer, Streams
from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.forward import forward
from etude.sandbox.egress.limits import ProxyLimits, RequestRate
from etude.sandbox.egress.policy import AllowList
from etude.sandbox.egress.service import ProxyService, ServiceRequest

_MOST_BODY_BYTES = 1 << 16  # of a request that needs none: an endless one would cost the host a core


@dataclass
class ProxyState:
    """What all visits at one door share; `policy` and `services` change under them."""

    policy: AllowList
    journal: DecisionLog
    services: dict[str, ProxyService]
    dialer: Dialer
    limits: ProxyLimits
    rate: RequestRate
    lookups: asyncio.Semaphore


@dataclass
class _Request:
    """What the record will say, gathered while it goes on."""

    method: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    allowed: bool = False
    status: int = 0
    reason: str = ""
    up_bytes: int = 0
    down_bytes: int = 0

    def count(self, up: int, down: int) -> None:
        self.up_bytes += up
        self.down_bytes += down


class ProxyConnection:
    """`cut` ends it from outside, at once."""

    def __init__(self, state: ProxyState, peer: socket.socket) -> None:
        self._state, self._peer = state, peer
        self._goal: ProxyService | targets.RequestTarget | None = None
        self._outer: Streams | None = None
        self._inner: Streams | None = None
        self._cut = ""
        self.task: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        try:
            self._inner = await asyncio.open_connection(sock=self._peer, limit=STREAM_BYTES)
            client = Client(*self._inner, self._state.limits)
            while await self._one(client):
                continue
            with suppress(OSError):
                await client.drain()
                self._inner[1].close()
        except asyncio.CancelledError:
            if not self._cut:
                raise
        finally:
            for streams in (self._inner, self._outer):
                if streams is not None:
                    streams[1].close()

    def is_permitted(self) -> bool:
        """Whether what it does now would be allowed now. Between requests it does nothing."""
        if self._goal is None:
            return True
        if isinstance(self._goal, targets.RequestTarget):
            return self._state.policy.allows(self._goal.host, self._goal.port)
        return self._goal in self._state.services.values()

    def cut(self, reason: str) -> None:
        """Both connections end now, with a reset."""
        self._cut = reason
        if self._inner is None:
            self._peer.close()
        for streams in (self._inner, self._outer):
            if streams is not None:
                streams[1].transport.abort()
        if self.task is not None:
            self.task.cancel()

    async def _one(self, client: Client) -> bool:
        """Serve a request; whether another may follow."""
        await asyncio.sleep(self._state.rate.wait_s(time.monotonic()))
        try:
            head = await client.head()
        except RequestRefused as refusal:
            self._record(_Request(status=refusal.status, reason=refusal.reason), time.time(), 0.0)
            await client.refuse(refusal)
            return False
        except OSError:
            return False
        if head is None:
            return False
        request = _Request(head.method.decode(), path=head.target.decode())
        began, start = time.time(), time.monotonic()
        refusal = None
        try:
            await self._answer(client, head, request)
            return client.goes_on()
        except RequestRefused as found:
            refusal = found
            request.status, request.reason = found.status, found.reason
        except h11.LocalProtocolError as error:
            request.reason = f"the answer can't be sent: {error}"
        except OSError as error:
            request.reason = f"broken off: {error.strerror or error}"
        finally:
            request.reason = self._cut or request.reason
            self._record(request, began, time.monotonic() - start)
            self._goal = None
        if refusal is not None:
            await client.refuse(refusal)
        return False

    async def _answer(self, client: Client, head: h11.Request, request: _Request) -> None:
        text = head.target.decode()
        if text.startswith("/"):
            return await self._serve_ourselves(client, head, request)
        if text == "*":
            raise RequestRefused(400, "a proxy is asked for a whole URL")
        request.host = text.partition("://")[2] or text  # the text of the request, in case it is refused unread
        target = targets.authority(text) if head.method == b"CONNECT" else targets.absolute(text)
        request.host, request.port, request.path = target.host, target.port, target.path
        self._pass(head, target)
        self._goal = target
        self._outer = await self._state.dialer.connect(target.host, target.port, self._state.lookups)
        request.allowed = True
        try:
            if head.method == b"CONNECT":
                request.status = 200
                await self._tunnel(client, request, self._outer)
            else:
                idle_s = self._state.limits.idle_s
                request.status = await forward(client, head, target, self._outer, request.count, idle_s)
        finally:
            self._outer[1].close()
            self._outer = None

    def _pass(self, head: h11.Request, target: targets.RequestTarget) -> None:
        """Raises Refused."""
        hosts = [value.decode("latin-1") for name, value in head.headers if name == b"host"]
        if any(not targets.same_host(host, target) for host in hosts):
            raise RequestRefused(400, "the Host header names another host than the request")
        if not self._state.policy.allows(target.host, target.port):
            raise RequestRefused(403, f"{target.host}:{target.port} is not on this sandbox' list")
        self._guard()

    def _guard(self) -> None:
        if refusal_reason := self._state.journal.refusal_reason:
            raise RequestRefused(503, refusal_reason)

    async def _tunnel(self, client: Client, request: _Request, outer: Streams) -> None:
        async for _ in client.body():
            continue  # a CONNECT has none; this takes its end
        await client.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        early = client.switch_to_bytes()
        outer[1].write(early)
        request.count(len(early), 0)
        await tunnel((client.reader, client.writer), outer, request.count, self._state.limits.idle_s)

    async def _serve_ourselves(self, client: Client, head: h11.Request, request: _Request) -> None:
        path = unquote(head.target.decode().partition("?")[0], errors="replace")
        name, _, rest = path.removeprefix("/").partition("/")
        service = self._state.services.get(name)
        if service is None:
            raise RequestRefused(404, f"no service /{name} at this door; a proxy is asked for a whole URL")
        request.host = name
        if head.method not in (b"GET", b"HEAD"):
            raise RequestRefused(405, f"{name} can only be read")
        self._guard()
        left = _MOST_BODY_BYTES
        async for piece in client.body():
            left -= len(piece)
            if left < 0:
                raise RequestRefused(
                    413, f"{name} is only read: a body of more than {_MOST_BODY_BYTES} bytes has no place there"
                )
        self._goal = service
        accept = b", ".join(value for key, value in head.headers if key == b"accept").decode("latin-1")
        page = await service.serve(ServiceRequest(rest, accept))
        request.allowed, request.status = True, page.status
        size = len(page.body) if page.stream is None else page.size
        headers = [*page.headers, *([("Content-Length", str(size))] if size is not None else [])]
        await client.send(h11.Response(status_code=page.status, headers=headers))
        if head.method == b"GET":
            async with aclosing(page.stream or _whole(page.body)) as pieces:
                async for piece in pieces:
                    request.count(0, len(piece))
                    await client.send(h11.Data(data=piece))
        await client.send(h11.EndOfMessage())

    def _record(self, request: _Request, began_s: float, duration_s: float) -> None:
        self._state.journal.write(
            Decision(
                time_s=began_s,
                sandbox=self._state.journal.sandbox,
                method=cut(request.method),
                host=cut(request.host),
                port=request.port,
                path=cut(request.path),
                allowed=request.allowed,
                status=request.status,
                reason=cut(request.reason),
                up_bytes=request.up_bytes,
                down_bytes=request.down_bytes,
                duration_s=round(duration_s, 6),
            )
        )


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    if body:
        yield body


# A side that does not read makes the other side wait (bounded buffers). The end of one direction is passed on while the other continues.


async def tunnel(inner: Streams, outer: Streams, count: Callable[[int, int], None], idle_s: float) -> None:
    """`count(up, down)` is called for every piece. Raises Refused after `idle_s` without one, OSError when a side breaks."""
    loop = asyncio.get_running_loop()
    last_s = loop.time()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upwards: bool) -> None:
        nonlocal last_s
        while data := await reader.read(STREAM_BYTES):
            writer.write(data)
            await writer.drain()
            last_s = loop.time()
            count(len(data) if upwards else 0, 0 if upwards else len(data))
        writer.write_eof()

    pumps = {
        asyncio.ensure_future(pump(inner[0], outer[1], True)),
        asyncio.ensure_future(pump(outer[0], inner[1], False)),
    }
    pending = set(pumps)
    try:
        while pending:
            left_s = last_s + idle_s - loop.time()
            if left_s <= 0:
                raise RequestRefused(408, f"not a byte for {idle_s:g} s")
            done, pending = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
    finally:
        for one in pumps:
            one.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
