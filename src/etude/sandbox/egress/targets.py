"""What a request is for, read strictly: one spelling of a host, or none.

Promise: whatever passes is a plain lower-case host name. An address in any spelling (`127.1`, `0x7f000001`, `[::1]`), a user before the host,
a trailing dot, an escape or a letter beyond ASCII is refused here, so that no other module has to handle them. Differs from the
URL standard in what it refuses to repair.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from etude.sandbox.egress.errors import RequestRefused

_MAX_HOST = 253  # RFC 1035, without the root's dot
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(
    r"[0-9]+|0x[0-9a-f]*"
)  # a last label like this makes the whole an IPv4 address (URL standard, 3.5)
_PORT = re.compile(r"[1-9][0-9]{0,4}")
HTTP_PORT = 80


@dataclass(frozen=True)
class RequestTarget:
    """Whom a request is for. `path` is the path requested of the upstream; "" for a tunnel."""

    host: str
    port: int
    path: str = ""


def host_name(text: str) -> str:
    """The name in lower case. Raises Refused."""
    if text.startswith("[") or ":" in text:
        raise RequestRefused(403, "an address instead of a host name")
    name = text.lower() if text.isascii() else ""
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]) or (labels[-1] == "" and len(labels) > 1 and _NUMBER.fullmatch(labels[-2])):
        raise RequestRefused(403, "an address instead of a host name")
    if name.endswith("."):
        raise RequestRefused(400, "a host with a dot at its end")
    if len(name) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise RequestRefused(400, "no plain host name")
    return name


def port_number(text: str) -> int:
    """Raises Refused."""
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise RequestRefused(400, "no port between 1 and 65535")
    return int(text)


def authority(text: str) -> RequestTarget:
    """`host:port`, as CONNECT names it. Raises Refused."""
    if "@" in text:
        raise RequestRefused(400, "a host with a user before it")
    if text.startswith("[") or text.count(":") > 1:
        raise RequestRefused(403, "an address instead of a host name")
    host, colon, port = text.partition(":")
    name = host_name(host)
    if not colon:
        raise RequestRefused(400, "a tunnel without a port")
    return RequestTarget(name, port_number(port))


def absolute(text: str) -> RequestTarget:
    """`http://host[:port]/path?query`. Raises Refused."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() != "http":
        raise RequestRefused(400, "only http:// is forwarded; https goes by CONNECT")
    if "\\" in rest or "#" in rest:
        raise RequestRefused(400, "a backslash or a fragment in a URL")
    end = min((rest.index(mark) for mark in "/?" if mark in rest), default=len(rest))
    host, path = rest[:end], rest[end:]
    target = authority(host if ":" in host or host.startswith("[") else f"{host}:{HTTP_PORT}")
    return RequestTarget(target.host, target.port, path if path.startswith("/") else f"/{path}")


def same_host(header: str, target: RequestTarget) -> bool:
    """Whether a Host header names the request's own target; one that differs is an attempt at smuggling."""
    host, colon, port = header.strip().partition(":")
    return host.lower() == target.host and (not colon or port == str(target.port))
