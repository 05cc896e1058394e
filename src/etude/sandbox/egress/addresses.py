"""Which addresses may be dialled once a listed name has been resolved: public ones that are not this host's own.

A name on the list may resolve to anything (DNS rebinding): loopback, the machine's services, its cloud's metadata. So every address is looked
at, embedded ones too (IPv4 in IPv6, 6to4, Teredo, NAT64). `opened` are networks that the caller lets in all the same: a company's mirror, a
test's own server.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
# What the registries of special addresses keep from the world and older Pythons call global.
_SPECIAL: tuple[Network, ...] = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "64:ff9b:1::/48", "fec0::/10", "3fff::/20", "5f00::/16"))
)
_DISCARD_PORT = 9


def objection(text: str, opened: Iterable[Network] = ()) -> str | None:
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


def _embedded(address: Address) -> Iterator[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return
    yield from (found for found in (address.ipv4_mapped, address.sixtofour) if found is not None)
    yield from address.teredo or ()
    if address in _NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _is_special(address: Address) -> bool:
    reserved = address.is_reserved and address not in _NAT64  # whose embedded address is looked at by itself
    return reserved or any(address in network for network in _SPECIAL)


def _is_own(address: Address) -> bool:
    """The kernel talks to its own addresses from the very same one. A datagram socket's connect sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _DISCARD_PORT))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address
    except OSError:
        return False  # no way there at all: dialling will say so
