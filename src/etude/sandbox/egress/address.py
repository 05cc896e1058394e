"""The address of an HTTP endpoint, as a person gives it: checked where it comes in, so that what is wrong with it has a name."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urljoin, urlsplit

_USER = re.compile(r"(?<=//)[^/@\s]+@")
_PORTS = {"http": 80, "https": 443}


class AddressError(ValueError):
    """An address that no request can go to. The message holds the address without a password, and the remedy."""


def split_address(url: str) -> SplitResult:
    """The parts of an endpoint's address; its host and its port can be read. Raises AddressError."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(_words(url, str(error))) from error
    if parts.scheme not in _PORTS:
        raise AddressError(_words(url, "it begins with neither http:// nor https://"))
    if not host or re.search(r"[\s\x00-\x1f\x7f]", url.strip()):
        raise AddressError(_words(url, "it holds a blank" if host else "it names no host"))
    return parts


def origin_of(url: str) -> str:
    """Scheme, host and port. Raises AddressError."""
    parts = split_address(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"


def redirect_target(url: str, location: str) -> str | None:
    """Where a redirect leads that may be followed with the same key: to the same host and port, or from http's own port to that of https.
    None for any other, which a person must decide on."""
    try:
        target = urljoin(url, location)
        here, there = origin_of(url), origin_of(target)
    except ValueError:
        return None
    encrypted = here.replace("http://", "https://", 1)
    allowed = {here, encrypted, f"{encrypted.removesuffix(':80')}:443"} if here.endswith(":80") else {here, encrypted}
    return target if target != url and there in allowed else None


def _words(url: str, why: str) -> str:
    return (
        f"{_USER.sub('[hidden]@', url)!r} is no address of an endpoint: {why}; write one like http://127.0.0.1:8000/v1"
    )
