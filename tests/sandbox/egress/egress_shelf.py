"""An upstream index on loopback: paths and what lies there."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Shelf:
    def __init__(self) -> None:
        self.things: dict[str, tuple[str, bytes]] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[str] = []
        self.lock = ""  # the Authorization without which nothing is served
        self.keys: list[str] = []  # what was sent as one
        self.port = 0

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = request.split(" ")[1]
            self.asked.append(path)
            keys = [
                line.partition(":")[2].strip()
                for line in request.split("\r\n")
                if line.lower().startswith("authorization:")
            ]
            self.keys += keys
            if self.lock and keys != [self.lock]:
                head, body = "401 Unauthorized", b""
            elif path in self.redirects:
                head, body = f"302 Found\r\nLocation: {self.redirects[path]}", b""
            elif path in self.things:
                kind, body = self.things[path]
                head = f"200 OK\r\nContent-Type: {kind}"
            else:
                head, body = "404 Not Found", b""
            writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()
            writer.close()
