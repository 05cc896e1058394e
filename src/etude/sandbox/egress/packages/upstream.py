"""The real index, asked by the host: pages whole and bounded, files in pieces.

`http(s)` as the host's own tools speak it (its proxies and certificates), and `file`: a folder that is an index. A page of the web can't send
us to a file of this machine, nor from https to http.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.packages.discovery import IndexConfiguration

if TYPE_CHECKING:
    import httpx

_PATIENCE_S = 30.0
_MAX_PAGE_BYTES = 64 << 20  # npm's largest documents have some 40 MB
_MOST_REDIRECTS = 3
_PIECE_BYTES = 1 << 16
_GONE = (404, 410)
_CLOSED = (401, 407)


@dataclass(frozen=True)
class UpstreamResponse:
    """`url` is where it was in the end: relative links start there."""

    url: str
    content_type: str
    body: bytes


class IndexUpstream:
    def __init__(self, configured: IndexConfiguration) -> None:
        self.urls = tuple(bare(url).rstrip("/") + "/" for url in configured.urls)
        self._credentials = Credentials(configured.urls, configured.tokens)
        self._authority = configured.authority
        self._client: httpx.AsyncClient | None = None

    async def page(self, url: str, accept: str) -> UpstreamResponse | None:
        """None: there is no such page. Raises Refused(502)."""
        if url.startswith("file:"):
            return _local_page(url)
        async with self._response(url, accept) as response:
            if response.status_code in _GONE:
                return None
            body = bytearray()
            async for piece in response.aiter_bytes(_PIECE_BYTES):
                body += piece
                if len(body) > _MAX_PAGE_BYTES:
                    raise RequestRefused(502, f"the index' page has more than {_MAX_PAGE_BYTES >> 20} MiB")
            return UpstreamResponse(str(response.url), response.headers.get("content-type", ""), bytes(body))

    async def pieces(self, url: str) -> AsyncGenerator[bytes, None]:
        """A file, exactly as it lies there. Raises Refused(502)."""
        if url.startswith("file:"):
            with _opened(url) as file:
                while piece := file.read(_PIECE_BYTES):
                    yield piece
            return
        async with self._response(url, "*/*", whole=True) as response:
            if response.status_code in _GONE:
                raise RequestRefused(404, "the index no longer has this file")
            async for piece in response.aiter_raw(_PIECE_BYTES):
                yield piece

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    @asynccontextmanager
    async def _response(self, url: str, accept: str, *, whole: bool = False) -> AsyncIterator[httpx.Response]:
        import httpx  # not before it is needed: it takes a tenth of a second

        if self._client is None:
            verify = ssl.create_default_context(cafile=self._authority or None)
            self._client = httpx.AsyncClient(verify=verify, timeout=_PATIENCE_S)
        headers = {"Accept": accept} | ({"Accept-Encoding": "identity"} if whole else {})
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                asked = {**headers, **self._credentials.of(url)}
                async with self._client.stream("GET", url, headers=asked) as response:
                    if not response.is_redirect:
                        if response.status_code in _CLOSED:
                            raise RequestRefused(
                                502,
                                f"the index answers {response.status_code}: this machine's credentials do not open it",
                            )
                        if not response.is_success and response.status_code not in _GONE:
                            raise RequestRefused(502, f"the index answers {response.status_code}")
                        yield response
                        return
                    url = join_link(url, response.headers.get("location", ""))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RequestRefused(502, f"the index can't be read: {type(error).__name__} {error}") from None
        raise RequestRefused(502, f"the index redirects more than {_MOST_REDIRECTS} times")


def join_link(base: str, link: str) -> str:
    """The link's own address. Raises Refused for one that leaves the base's kind of place."""
    found = urljoin(base, link)
    before, after = urlsplit(base).scheme, urlsplit(found).scheme
    if after != before and (before, after) != ("http", "https"):
        raise RequestRefused(502, f"the index leads from {before} to {after or 'nowhere'}")
    return found


def _local_page(url: str) -> UpstreamResponse | None:
    path = unquote(urlsplit(url).path)
    path = os.path.join(path, "index.html") if path.endswith("/") else path
    try:
        with open(path, "rb") as file:
            return UpstreamResponse(url, "text/html", file.read(_MAX_PAGE_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RequestRefused(502, f"the index can't be read: {error.strerror}") from None


def _opened(url: str) -> BinaryIO:
    try:
        return open(unquote(urlsplit(url).path), "rb")
    except OSError as error:
        raise RequestRefused(502, f"the index' file can't be read: {error.strerror}") from None


# Credentials of private indexes, by the server that they belong to. They stay outside of every sandbox, go to that server alone
# and are never printed. Names and passwords come with an index' own URL, tokens from npm's settings. A link within the same server
# is requested with them too: private mirrors serve their files from the server of their pages. A link to another server is not.

_PORTS = {"http": 80, "https": 443}


class Credentials:
    def __init__(self, urls: Sequence[str], tokens: Sequence[tuple[str, str]] = ()) -> None:
        """`tokens`: a place as npm writes it, `//host/path/`, and the token for all below it."""
        self._basic: dict[tuple[str, str, int], str] = {}
        self._tokens = sorted(tokens, key=lambda one: -len(one[0]))
        for url in urls:
            parts = urlsplit(url)
            if parts.username is not None and parts.scheme in _PORTS:
                said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                self._basic[_place(parts)] = "Basic " + base64.b64encode(said.encode()).decode("ascii")

    def __repr__(self) -> str:
        return f"Credentials({len(self._basic) + len(self._tokens)})"

    def of(self, url: str) -> dict[str, str]:
        """Headers for this address; none for an unknown address."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS:
            return {}
        where = f"//{parts.hostname}{_shown_port(parts)}{parts.path}"
        for below, token in self._tokens:
            if where.startswith(below):
                return {"Authorization": f"Bearer {token}"}
        said = self._basic.get(_place(parts))
        return {"Authorization": said} if said else {}


def bare(url: str) -> str:
    """The address without name and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _place(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]


def _shown_port(parts: SplitResult) -> str:
    return "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
