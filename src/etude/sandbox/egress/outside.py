"""The way out: resolve once, look at every address, dial one of those that were looked at.

Resolving and dialling are seams: tests bring their own. What is dialled is an address, never a name, so nothing can change in between.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from etude.sandbox.egress import addresses
from etude.sandbox.egress.refused import Refused

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str, int], Awaitable[list[str]]]
Dial = Callable[[str, int], Awaitable[Streams]]

STREAM_BYTES = 1 << 16  # read ahead per direction; beyond twice it the faster side waits
_MOST_ADDRESSES = 4  # tried one after the other


@functools.cache
def _resolvers() -> ThreadPoolExecutor:
    """Threads of their own: a slow name server must not hold up what else this process does in threads."""
    return ThreadPoolExecutor(16, thread_name_prefix="etude-resolve")


async def resolve_by_system(host: str, port: int) -> list[str]:
    """In the resolver's order, each once. Raises OSError."""
    ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_resolvers(), ask)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def dial_by_system(address: str, port: int) -> Streams:
    return await asyncio.open_connection(address, port, limit=STREAM_BYTES)


@dataclass(frozen=True)
class Outside:
    """`opened`: networks that are no part of the public world and may be dialled all the same; by default none."""

    resolve: Resolve = resolve_by_system
    dial: Dial = dial_by_system
    opened: tuple[addresses.Network, ...] = ()
    patience_s: float = 10.0

    async def connect(self, host: str, port: int, lookups: asyncio.Semaphore) -> Streams:
        """Raises Refused: 403 for where no sandbox may go, 502 for what can't be reached, 504 for what does not answer."""
        problem = ""
        try:
            async with asyncio.timeout(self.patience_s):
                async with lookups:
                    found = await self._checked(host, port)
                for address in found:
                    try:
                        async with asyncio.timeout(self.patience_s / len(found)):
                            return await self.dial(address, port)
                    except OSError as error:  # a TimeoutError is one
                        problem = error.strerror or str(error) or "no answer"
        except TimeoutError:
            raise Refused(504, f"{host}:{port} did not answer within {self.patience_s:g} s") from None
        raise Refused(502, f"{host}:{port} can't be reached: {problem}")

    async def _checked(self, host: str, port: int) -> list[str]:
        try:
            found = await self.resolve(host, port)
        except OSError as error:
            raise Refused(502, f"{host} can't be resolved: {error.strerror or error}") from None
        if not found:
            raise Refused(502, f"{host} has no address")
        for address in found:
            if objection := addresses.objection(address, self.opened):
                raise Refused(403, f"{host} resolves to {address}: {objection}")
        return found[:_MOST_ADDRESSES]
