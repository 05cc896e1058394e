"""The door at /pip: pip's simple index, cut to the named projects and to files published in time.

What is refused is refused for files as for pages: a file's own link does not help. A file without a digest is not served, nor is one without
a date where the rule has one (HTML indexes tell none). Only what a client downloads is fetched.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.packages import simple
from etude.sandbox.egress.packages.cache import FileCache, best
from etude.sandbox.egress.packages.rule import PackageFilter, pip_name
from etude.sandbox.egress.packages.upstream import IndexUpstream
from etude.sandbox.egress.service import ServiceRequest, ServiceResponse

# Pages that were read a moment ago, each asked for once however many want it at the same time.


T = TypeVar("T")


class MetadataCache(Generic[T]):
    """The last `most` pages, each for `life_s`. A failure is not remembered."""

    def __init__(self, most: int, life_s: float = 300.0) -> None:
        self._most, self._life_s = most, life_s
        self._pages: dict[str, tuple[float, asyncio.Task[T]]] = {}

    async def get(self, name: str, read: Callable[[], Awaitable[T]]) -> T:
        now = asyncio.get_running_loop().time()
        end_s, task = self._pages.get(name, (0.0, None))
        failed = task is not None and task.done() and (task.cancelled() or task.exception() is not None)
        if task is None or failed or now >= end_s:
            task = asyncio.ensure_future(_run(read))
            self._pages.pop(name, None)
            self._pages[name] = (now + self._life_s, task)
            while len(self._pages) > self._most:
                del self._pages[next(iter(self._pages))]
        return await asyncio.shield(task)  # one who leaves does not take it from the others


async def _run(read: Callable[[], Awaitable[T]]) -> T:
    return await read()


_METADATA = ".metadata"  # PEP 658


class PipIndex:
    """What all pip doors of a process share."""

    def __init__(self, upstream: IndexUpstream, cache: FileCache) -> None:
        self.upstream, self.cache = upstream, cache
        self._pages: MetadataCache[list[simple.IndexFile]] = MetadataCache(256)

    async def files(self, project: str) -> list[simple.IndexFile]:
        """Of all indexes, as pip takes them; the first one's where two have a file of one name. Raises Refused: 404 where none has it."""
        return await self._pages.get(project, functools.partial(self._read, project))

    async def _read(self, project: str) -> list[simple.IndexFile]:
        found: dict[str, simple.IndexFile] = {}
        known = False
        for url in self.upstream.urls:
            page = await self.upstream.page(f"{url}{project}/", simple.ACCEPT)
            if page is None:
                continue
            known = True
            for file in simple.read(page.body, page.content_type, page.url):
                found.setdefault(file.name, file)
        if not known:
            raise RequestRefused(404, f"no index has a project {project}")
        return list(found.values())


class PipService:
    name = "pip"

    def __init__(self, index: PipIndex, rule: PackageFilter) -> None:
        self._index, self._rule = index, rule

    def __eq__(self, other: object) -> bool:
        """Whether they serve the same: downloads by the one may then go on under the other."""
        return isinstance(other, PipService) and (self._index, self._rule) == (other._index, other._rule)

    def __hash__(self) -> int:
        return hash(self._rule)

    async def serve(self, ask: ServiceRequest) -> ServiceResponse:
        kind, *rest = [part for part in ask.path.split("/") if part] or [""]
        if kind == "simple" and not rest:
            return self._projects(ask.accept)
        if kind == "simple" and len(rest) == 1:
            return await self._page(self._rule.require(rest[0], pip_name), ask.accept)
        if kind == "files" and len(rest) == 2:
            return await self._file(self._rule.require(rest[0], pip_name), rest[1])
        raise RequestRefused(404, "pip's index has simple/, simple/PROJECT/ and the files that those name")

    def _projects(self, accept: str) -> ServiceResponse:
        names = sorted(self._rule.names)
        if simple.JSON_TYPE in accept:
            return _page(simple.write_projects_json(names), simple.JSON_TYPE)
        return _page(simple.write_projects_html(names), simple.HTML_TYPE)

    async def _page(self, project: str, accept: str) -> ServiceResponse:
        files = [
            (file, simple.link(project, file.name)) for file in await self._index.files(project) if self._given(file)
        ]
        if simple.JSON_TYPE in accept:
            return _page(simple.write_json(project, files), simple.JSON_TYPE)
        return _page(simple.write_html(project, files), simple.HTML_TYPE)

    def _given(self, file: simple.IndexFile) -> bool:
        return best(file.hashes) is not None and self._rule.in_time(file.published)

    async def _file(self, project: str, name: str) -> ServiceResponse:
        files = {file.name: file for file in await self._index.files(project)}
        file, about = files.get(name), None
        if file is None and name.endswith(_METADATA):
            file = files.get(name.removesuffix(_METADATA))
            about = best(file.metadata or {}) if file else None
            file = file if about else None
        if file is None:
            raise RequestRefused(404, f"project {project} has no file {name}")
        digest = best(file.hashes)
        if digest is None or not self._rule.in_time(file.published):
            raise RequestRefused(
                403, f"{name} was published {file.published or 'at an unknown time'}, which is not in time"
            )
        url, size = (file.url + _METADATA, None) if about else (file.url, file.size)
        digest = about or digest
        known = self._index.cache.size(digest)
        stream = self._index.cache.pieces(digest, self._index.upstream.pieces(url))
        headers = (("Content-Type", "application/octet-stream"),)
        return ServiceResponse(headers=headers, stream=stream, size=size if known is None else known)


def _page(body: bytes, content_type: str) -> ServiceResponse:
    return ServiceResponse(headers=(("Content-Type", content_type),), body=body)
