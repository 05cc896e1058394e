"""A small world around one door: names that resolve as configured, servers on loopback behind fake public addresses, a client for raw bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from etude.sandbox.egress.decisions import Decision, DecisionFile, DecisionLog
from etude.sandbox.egress.dialer import Dialer, Streams
from etude.sandbox.egress.limits import ProxyLimits
from etude.sandbox.egress.policy import AllowList
from etude.sandbox.egress.proxy import EgressProxy
from etude.sandbox.egress.service import ProxyService

PUBLIC = "93.184.216.34"  # never dialled: the town's own dialling maps it to loopback
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Town:
    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self.servers: dict[tuple[str, int], int] = {}  # invented address and port -> port on loopback
        self.dialled: list[tuple[str, int]] = []
        self.journal = DecisionLog("sb-test", DecisionFile(None))
        self.limits = ProxyLimits(head_s=5.0, idle_s=5.0)
        self._started: list[asyncio.Server] = []
        self._doors: list[EgressProxy] = []
        self.port = 0

    async def open(self, hosts: list[str], services: Mapping[str, ProxyService] | None = None) -> EgressProxy:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        dialer = Dialer(self._resolve, self._dial)
        door = EgressProxy(
            listener, AllowList.parse(hosts), self.journal, services=services, dialer=dialer, limits=self.limits
        )
        self._doors.append(door)
        door.start()
        return door

    async def host(self, name: str, serve: Serve, port: int = 443, address: str = PUBLIC) -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._started.append(server)
        self.names[name] = [address]
        self.servers[address, port] = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        for door in self._doors:
            await door.close()
        for server in self._started:
            server.close()

    async def _resolve(self, host: str, port: int) -> list[str]:
        if host not in self.names:
            raise OSError(f"no such name {host}")
        return self.names[host]

    async def _dial(self, address: str, port: int) -> Streams:
        self.dialled.append((address, port))
        if (address, port) not in self.servers:
            raise ConnectionRefusedError(111, "Connection refused")
        return await asyncio.open_connection("127.0.0.1", self.servers[address, port])

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Streams]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def say(self, raw: bytes) -> bytes:
        """Everything the door answers to these bytes, up to its end of the connection."""
        async with self.client() as (reader, writer):
            writer.write(raw)
            with suppress(OSError):
                writer.write_eof()
            async with asyncio.timeout(10):
                with suppress(ConnectionResetError):
                    return await reader.read()
            return b""

    async def status(self, raw: bytes) -> int:
        answer = await self.say(raw)
        return int(answer.split(b" ")[1]) if answer else 0

    async def fetch(self, path: str, *fields: str) -> tuple[int, bytes]:
        """Status and body of what the door serves itself (asked as 1.0, so that nothing comes in chunks)."""
        raw = get(path, "127.0.0.1:3128", *fields).replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
        head, _, body = (await self.say(raw)).partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body

    async def recorded(self, count: int) -> list[Decision]:
        """The journal, once it has this many entries."""
        async with asyncio.timeout(10):
            while len(self.journal.decisions) < count:
                await asyncio.sleep(0.005)
        return list(self.journal.decisions)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


class Web:
    """Answers every request with `answer`; keeps what it was sent."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") -> None:
        self.answer = answer
        self.heard = b""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heard += head
            if b"chunked" in head:
                self.heard += await reader.readuntil(b"0\r\n\r\n")
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    self.heard += await reader.readexactly(int(line.partition(b":")[2]))
            writer.write(self.answer)
            await writer.drain()
            writer.close()


def connect(goal: str, *fields: str) -> bytes:
    return "\r\n".join([f"CONNECT {goal} HTTP/1.1", f"Host: {goal}", *fields, "", ""]).encode()


def get(url: str, host: str, *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {url} HTTP/1.1", f"Host: {host}", *fields, "Connection: close", "", ""]).encode()
