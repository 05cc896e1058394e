"""A registry that is no network: answers from a dictionary, and counts what it was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx

from etude.core.sources.download import Downloader
from etude.core.sources.fetch import Fetcher

Answer = bytes | int | Exception | httpx.Response


def streamed(content: bytes, stated: bool = True) -> httpx.Response:
    """An answer whose content is still on its way; `stated`: it says its length."""
    headers = {"Content-Length": str(len(content))} if stated else {}
    return httpx.Response(200, headers=headers, stream=httpx.ByteStream(content))


class Registry(httpx.BaseTransport):
    """`pages` maps an address to its content, a status, an error, or a list of these, one for each time it is asked for."""

    def __init__(self, pages: dict[str, Answer | list[Answer]]) -> None:
        self.pages = pages
        self.asked: Counter[str] = Counter()
        self.requests: list[httpx.Request] = []
        self.waits: list[float] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        address = str(request.url)
        self.requests.append(request)
        answer = self.pages.get(address, 404)
        if isinstance(answer, list):
            answer = answer[min(self.asked[address], len(answer) - 1)]
        self.asked[address] += 1
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(answer) if isinstance(answer, int) else streamed(answer)

    def fetcher(self, cache: Path, **options: int) -> Fetcher:
        sleep: Callable[[float], None] = self.waits.append
        return Fetcher(cache, Downloader(self, sleep), **options)
