"""The way out: resolve once, look at every address, dial one of those that were looked at.

Resolving and dialling are seams: tests bring their own. What is dialled is an address, never a name, so nothing can change in between.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from etude.sandbox.egress.errors import RequestRefused

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
class Dialer:
    """`opened`: networks that are no part of the public world and may be dialled all the same; by default none."""

    resolve: Resolve = resolve_by_system
    dial: Dial = dial_by_system
    opened: tuple[IpNetwork, ...] = ()
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
            raise RequestRefused(504, f"{host}:{port} did not answer within {self.patience_s:g} s") from None
        raise RequestRefused(502, f"{host}:{port} can't be reached: {problem}")

    async def _checked(self, host: str, port: int) -> list[str]:
        try:
            found = await self.resolve(host, port)
        except OSError as error:
            raise RequestRefused(502, f"{host} can't be resolved: {error.strerror or error}") from None
        if not found:
            raise RequestRefused(502, f"{host} has no address")
        for address in found:
            if problem := refusal_reason(address, self.opened):
                raise RequestRefused(403, f"{host} resolves to {address}: {problem}")
        return found[:_MOST_ADDRESSES]


# A name on the allow-list may resolve to anything (DNS rebinding): loopback, the machine's services, its cloud's metadata.
# So every address is checked, embedded ones too (IPv4 in IPv6, 6to4, Teredo, NAT64). `opened` lists networks that the caller
# allows in any case: a company's mirror, a test's server.

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
# What the registries of special addresses keep from the world and older Pythons call global.
_SPECIAL: tuple[IpNetwork, ...] = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "64:ff9b:1::/48", "fec0::/10", "3fff::/20", "5f00::/16"))
)
_DISCARD_PORT = 9


def refusal_reason(text: str, opened: Iterable[IpNetwork] = ()) -> str | None:
    """Why `text` may not be dialled; None: it may."""
    address = ipaddress.ip_address(text)
    for one in (address, *_embedded(address)):
        if any(one in network for network in opened):
            continue
        if not one.is_global or one.is_multicast or _is_special(one):
            return "not a public address"
        if _is_own(one):
            return "an address of this host"
    return None


def _embedded(address: IpAddress) -> Iterator[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return
    yield from (found for found in (address.ipv4_mapped, address.sixtofour) if found is not None)
    yield from address.teredo or ()
    if address in _NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _is_special(address: IpAddress) -> bool:
    reserved = address.is_reserved and address not in _NAT64  # whose embedded address is looked at by itself
    return reserved or any(address in network for network in _SPECIAL)


def _is_own(address: IpAddress) -> bool:
    """The kernel talks to its own addresses from the very same one. A datagram socket's connect sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _DISCARD_PORT))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address
    except OSError:
        return False  # no way there at all: dialling will say so
