"""The proxy that the environment names for an address: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, and NO_PROXY with what it excepts.

The machine's own addresses (localhost, 127.0.0.0/8, ::1) are never asked for through a proxy: it would look for them on itself.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

_SCHEMES = ("http", "https", "socks5", "socks5h")


class ConnectionSettingError(ValueError):
    """The environment keeps a connection from being made. The message names the variable and the remedy."""


class ProxyError(ConnectionSettingError):
    """A proxy that can't be used."""


@dataclass(frozen=True)
class Proxy:
    """`variable` is where it was found."""

    url: str
    variable: str

    @property
    def shown(self) -> str:
        """The proxy as an error names it, without a user or a password."""
        parts = urlsplit(self.url)
        return f"{self.variable}={parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def proxy_for(url: str) -> Proxy | None:
    """The proxy for this address; None for a direct connection. Raises ProxyError for one that can't be used."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:  # no address: the client says so
        return None
    if _is_loopback(host) or _is_excepted(host, port):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if value := os.environ.get(variable, "").strip():
                return _usable(Proxy(value if "://" in value else f"http://{value}", variable))
    return None


def _usable(proxy: Proxy) -> Proxy:
    try:
        parts = urlsplit(proxy.url)
        known = parts.scheme in _SCHEMES and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        known = False
    if not known:
        raise ProxyError(
            f"{proxy.variable} names no proxy that can be used; write http://HOST:PORT or socks5://HOST:PORT, or except the "
            "address in NO_PROXY"
        )
    if parts.scheme.startswith("socks") and not _has_socks():
        raise ProxyError(
            f"{proxy.shown} is a SOCKS proxy, which needs a package: install it with `pip install socksio`, or except the "
            "address in NO_PROXY"
        )
    return proxy


def _has_socks() -> bool:
    from importlib.util import find_spec

    return find_spec("socksio") is not None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _is_excepted(host: str, port: int | None) -> bool:
    """Whether NO_PROXY excepts it: a name with its subdomains, an address, a network, each with or without a port; `*` is all."""
    listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    return any(_matches(entry.strip().lower(), host.lower(), port) for entry in listed.split(",") if entry.strip())


def _matches(entry: str, host: str, port: int | None) -> bool:
    entry = entry.partition("://")[2] or entry
    if entry == "*":
        return True
    name, wanted_port = _split(entry)
    if wanted_port and wanted_port != str(port):
        return False
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(name, strict=False)
        except (ValueError, TypeError):
            return False
    name = name.removeprefix("*").lstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _split(entry: str) -> tuple[str, str]:
    """Host and port of an entry; an IPv6 address that may have a port is in brackets."""
    if entry.startswith("["):
        inside, _, rest = entry[1:].partition("]")
        return inside, rest.removeprefix(":")
    name, _, port = entry.rpartition(":")
    return (name, port) if name and ":" not in name and port.isdecimal() else (entry, "")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
