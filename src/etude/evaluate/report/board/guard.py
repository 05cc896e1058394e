"""Which requests are allowed: those of a browser on this machine that has the board's own address, and none through another page.

A page of another site can make a browser ask any address, also loopback's; DNS can be made to name loopback. So the Host must be
loopback by name or number with the board's port, an Origin must be the same, and a browser that says where a request comes from
(Sec-Fetch-Site) must say that it is the board or the person. Only GET and HEAD are answered: there is nothing to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message

NAMES = ("127.0.0.1", "localhost", "[::1]")
SITES = {"same-origin", "none", ""}  # "none": typed, or from a bookmark
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def refusal(headers: Mapping[str, str] | Message, port: int) -> str | None:
    """Why this request is not answered, or None."""
    hosts = {f"{name}:{port}" for name in NAMES}
    named = headers.get_all("Host", []) if isinstance(headers, Message) else [headers.get("Host", "")]
    if len(named) > 1:
        return f"the request names {len(named)} hosts; send one Host"
    host = named[0] if named else ""
    if host.lower() not in hosts:
        return f"the Host {host!r} is not this board's; open http://127.0.0.1:{port}/"
    origin = headers.get("Origin", "")
    if origin and origin.lower() not in {f"http://{name}" for name in hosts}:
        return f"asked by a page of {origin!r}; the board answers its own pages alone"
    if headers.get("Sec-Fetch-Site", "") not in SITES:
        return "asked by a page of another site; the board answers its own pages alone"
    return None
