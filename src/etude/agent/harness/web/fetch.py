"""Fetches pages of the public web as text. Promise: no address of this machine or its network is ever connected to: each name is
resolved here, each address checked, and the connection made to the very address that was checked, again for every redirect."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from etude.agent.harness.services import WebError

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


_LEFT_OUT = {"script", "style", "noscript", "template", "svg", "head"}
_BLOCKS = {
    "address", "article", "aside", "blockquote", "dd", "div", "dl", "dt", "fieldset", "figure", "footer", "form", "header", "hr",
    "li", "main", "nav", "ol", "p", "pre", "section", "table", "tr", "ul",
}  # fmt: skip
_HEADING = re.compile(r"h[1-6]$")


def text_of(html: str) -> str:
    """Raises nothing: what is no HTML comes out as the text it is."""
    page = _PageParser()
    page.feed(_closed(html))
    page.close()
    text = "".join(page.parts)
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _closed(html: str) -> str:
    """Without openings that nothing closes: the parser would look for the end of each to the end of the page."""
    unclosed = html.find("<!--", html.rfind("-->") + 1)
    if unclosed >= 0:
        html = html[:unclosed] + html[unclosed:].replace("<!--", "")
    last = html.rfind(">") + 1
    return html[:last] + html[last:].replace("<", "&lt;")


class _PageParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent: list[str] = []  # open elements whose text is left out
        self._pre = 0
        self._links: list[str] = []

    def parse_html_declaration(self, i: int) -> int:
        """A marked section is a comment, as in a browser; the parser's own reading of it fails an assertion."""
        return self.parse_bogus_comment(i) if self.rawdata.startswith("<![", i) else super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _LEFT_OUT and not (self._silent and tag == "head"):
            self._silent.append(tag)
        elif tag == "body":
            self._silent.clear()  # an unclosed head ends here
        elif _HEADING.match(tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif tag in _BLOCKS:
            self._pre += tag == "pre"
            self.parts.append("\n- " if tag == "li" else "\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        elif tag == "a" and self._links:
            target = self._links.pop()
            self.parts.append(f" ({target})" if target.startswith(("http://", "https://")) else "")
        elif tag in _BLOCKS or _HEADING.match(tag):
            self._pre -= tag == "pre" and self._pre > 0
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))
