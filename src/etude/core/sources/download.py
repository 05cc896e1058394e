"""One address into one file, over a network that fails: attempts, waits, and going on where a broken download ended.

Faults are separated by their cause: no server reachable, or an answer that shuts everyone out, is SourceOffline; a thing that isn't
there is Missing; one that is larger than allowed is ProjectRefused.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx

from etude.core.sources.project import ProjectRefused, SourceOffline

ATTEMPTS = (
    4  # with the waits below: 14 s, the time a registry takes to put another front end in the place of a broken one
)
WAIT_S = 2.0  # before the second attempt; twice that before each further one
MAX_WAIT_S = 30.0  # no registry is waited for longer, whatever it asks for
TIMEOUT = httpx.Timeout(30.0, connect=10.0)  # of one read: an archive may take hours as long as bytes come
# Somebody's passing trouble (RFC 9110; 429 from RFC 6585).
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
# A server that answers this admits no client from here: a proxy, or a registry that wants credentials.
CLOSED = frozenset({401, 403, 407, 451})
RESUMED, COMPLETE_ALREADY = 206, 416


class Missing(Exception):
    """The registry doesn't have it; the message names it."""


class _Busy(Exception):
    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class Downloader:
    """`transport` and `sleep` are the outer edges for tests."""

    def __init__(
        self, transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._transport, self._sleep = transport, sleep
        self._client: httpx.Client | None = None

    def download(self, url: str, part: Path, *, max_bytes: int, accept: str | None = None) -> None:
        """Into `part`. With `accept` it is a page: compressed on the way, never resumed; else the bytes are as they lie on the server and
        what `part` holds already is kept. Raises SourceOffline, Missing or ProjectRefused."""
        trouble = ""
        for attempt in range(ATTEMPTS):
            try:
                return self._attempt(url, part, max_bytes, accept)
            except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as error:
                raise SourceOffline(f"{address_without_login(url)} can't be fetched: {error}") from None
            except (httpx.TransportError, httpx.DecodingError) as error:
                trouble, wait_s = f"{type(error).__name__}: {error}", 0.0
            except _Busy as busy:
                trouble, wait_s = str(busy), busy.wait_s
            if attempt + 1 < ATTEMPTS:
                self._sleep(min(max(wait_s, WAIT_S * 2**attempt), MAX_WAIT_S))
        raise SourceOffline(f"{address_without_login(url)} can't be reached, tried {ATTEMPTS} times; {trouble}")

    def close(self) -> None:
        if self._client:
            self._client.close()
            self._client = None

    def _attempt(self, url: str, part: Path, max_bytes: int, accept: str | None) -> None:
        received = part.stat().st_size if accept is None and part.exists() else 0
        headers = {"Accept": accept or "*/*", "Accept-Encoding": "gzip" if accept else "identity"}
        if received:
            headers["Range"] = f"bytes={received}-"
        with self._http().stream("GET", url, headers=headers) as response:
            if response.status_code == COMPLETE_ALREADY and received:
                # Nothing after what is held: it is whole, or longer than the thing. The checksum tells.
                return
            self._judge(response, url)
            if response.status_code != RESUMED or not response.headers.get("content-range", "").startswith(
                f"bytes {received}-"
            ):
                if response.status_code == RESUMED:
                    part.unlink(missing_ok=True)
                    raise _Busy("it answers with a part that was not asked for", 0.0)
                received = 0
            if received + _length(response) > max_bytes:
                raise ProjectRefused(f"{address_without_login(url)} is larger than {max_bytes:,} bytes")
            with part.open("ab" if received else "wb") as file:
                for chunk in response.iter_bytes() if accept else response.iter_raw():
                    received += len(chunk)
                    if received > max_bytes:
                        raise ProjectRefused(f"{address_without_login(url)} is larger than {max_bytes:,} bytes")
                    file.write(chunk)

    @staticmethod
    def _judge(response: httpx.Response, url: str) -> None:
        status = response.status_code
        if status in TRANSIENT:
            retry_after = response.headers.get("retry-after", "")
            raise _Busy(f"it answers {status}", float(retry_after) if retry_after.isdigit() else 0.0)
        if status in CLOSED:
            raise SourceOffline(
                f"{address_without_login(url)} answers {status} {response.reason_phrase}: it wants credentials, or a proxy forbids it"
            )
        if not response.is_success:
            raise Missing(f"{address_without_login(url)} answers {status} {response.reason_phrase}")

    def _http(self) -> httpx.Client:
        if self._client is None:
            # The system's certificates, as the package managers use them, and not those that httpx brings along.
            verify = ssl.create_default_context()
            self._client = httpx.Client(
                transport=self._transport, verify=verify, timeout=TIMEOUT, follow_redirects=True
            )
        return self._client


def address_without_login(url: str) -> str:
    """The address without a login: for messages, refs and cache keys."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _length(response: httpx.Response) -> int:
    length = response.headers.get("content-length", "")
    return int(length) if length.isdigit() else 0
