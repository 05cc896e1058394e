"""Fetches pages of the public web as text. Promise: no address of this machine or its network is ever connected to: each name is
resolved here, each address checked, and the connection made to the very address that was checked, for every redirect anew."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from etude.agent.harness.services import WebError
from etude.agent.harness.web.page import text_of

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 20.0
MAX_PAGE_BYTES = 2 << 20
MAX_REDIRECTS = 5
_TEXT = ("text/", "application/json", "application/xml", "application/xhtml+xml", "application/javascript")

# From a host's name to its addresses. Raises OSError.
Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """By the machine's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(row[4][0]) for row in found]


class PageFetch:
    """`resolver` and `transport` are the outer edge."""

    def __init__(self, *, resolver: Resolve = resolve, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._resolve, self._transport = resolver, transport

    async def fetch(self, url: str) -> str:
        """The page's text. Raises WebError."""
        import httpx

        async with httpx.AsyncClient(transport=self._transport, timeout=TIMEOUT_S, trust_env=False) as client:
            try:
                async with asyncio.timeout(2 * TIMEOUT_S):
                    for _ in range(MAX_REDIRECTS + 1):
                        answer = await self._get(client, url)
                        if isinstance(answer, str):
                            return answer
                        url = urljoin(url, answer.headers["location"])
            except TimeoutError:
                raise WebError(f"{url} took longer than {2 * TIMEOUT_S:g} s") from None
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # a host or a redirect that is no address
                raise WebError(f"{url} can't be fetched: {type(error).__name__}") from error
        raise WebError(f"{url}: more than {MAX_REDIRECTS} redirects")

    async def _get(self, client: httpx.AsyncClient, url: str) -> str | httpx.Response:
        """The text, or the answer that leads elsewhere."""
        import httpx

        parts = _parts(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        address = await self._address(host, port)
        target = httpx.URL(url).copy_with(host=address)
        headers = {"Host": parts.netloc.rsplit("@", 1)[-1], "User-Agent": "etude", "Accept": "text/html, text/*;q=0.9"}
        request = client.build_request("GET", target, headers=headers, extensions={"sni_hostname": host})
        answer = await client.send(request, stream=True)
        try:
            if answer.is_redirect and "location" in answer.headers:
                return answer
            return await _text(url, answer)
        finally:
            await answer.aclose()

    async def _address(self, host: str, port: int) -> str:
        """One public address of a host. Raises WebError if any of its addresses is not public."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise WebError(f"no address for {host}") from error
        private = [one for one in addresses if not is_public(one)]
        if private or not addresses:
            raise WebError(f"{host} is not on the public web; addresses of this machine and its network are refused")
        return addresses[0]


def is_public(address: str) -> bool:
    """Whether an address is the public internet's; one that hides an IPv4 address is judged by that."""
    try:
        ip = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    inner = (ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]) if ip.version == 6 else None
    nat64 = ip.version == 6 and ip in ipaddress.ip_network("64:ff9b::/96")
    return ip.is_global and not ip.is_multicast and not nat64 and (inner is None or inner.is_global)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise WebError(f"{url[:200]} is no address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WebError(f"{url[:200]} is no http or https address")
    return parts


async def _text(url: str, answer: httpx.Response) -> str:
    if answer.status_code >= 400:
        raise WebError(f"{url} answered {answer.status_code}")
    kind = answer.headers.get("content-type", "text/plain").split(";")[0].strip().lower()
    if not kind.startswith(_TEXT):
        raise WebError(f"{url} is {kind}, not text")
    data = bytearray()
    async for piece in answer.aiter_bytes():
        data += piece
        if len(data) > MAX_PAGE_BYTES:
            raise WebError(f"{url} is larger than {MAX_PAGE_BYTES >> 20} MiB")
    try:
        text = data.decode(answer.charset_encoding or "utf-8", "replace")
    except (LookupError, ValueError):  # a charset that there is not, or that is none of texts
        text = data.decode("utf-8", "replace")
    is_html = "html" in kind or text.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))
    return await asyncio.to_thread(text_of, text) if is_html else text
