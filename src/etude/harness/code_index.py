"""The code index as a session's tool sees it: its own edits and nobody else's. The same ranking in product and training.

A person's folder is its own truth: it is looked through for changes before each search (by whomever they were made). A rollout
has an overlay over the index of its repository, which its tools' edits go into; what its shell commands change is not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from etude.harness.services import CodeHit
from etude.harness.tools.tool import ToolError
from etude.index.errors import EmbedderFailed, IndexRefused, ServiceLost
from etude.index.hit import Hit
from etude.index.index import Index
from etude.index.overlay import Overlay
from etude.index.update import Progress
from etude.sandbox.protocol import InfraError


class SessionIndex(Protocol):
    """A session's line to an index service (`IndexClient`)."""

    async def put(self, files: Mapping[str, str | bytes | None]) -> dict[str, str]: ...
    async def search(self, query: str, *, limit: int = 10, under: str | None = None) -> list[Hit]: ...


class FolderIndex:
    """Over the folder that a person works in. The first search waits until the folder is indexed; `progress` is told, on another
    thread, how far it is."""

    def __init__(self, index: Index, progress: Progress | None = None) -> None:
        self._index = index
        self._progress = progress
        self._updating = asyncio.Lock()

    async def search(self, query: str, *, limit: int, under: str | None) -> Sequence[CodeHit]:
        return await _asked(self._search(query, limit, under))

    async def _search(self, query: str, limit: int, under: str | None) -> list[Hit]:
        async with self._updating:
            try:
                await asyncio.to_thread(self._index.update, progress=self._progress)
            except (
                OSError
            ) as error:  # the cache's disk is full, a folder is closed: the person's machine, not a fault of ours
                raise ToolError(f"the folder can't be indexed ({error}); search by text instead") from error
        return await asyncio.to_thread(self._index.search, query, limit=limit, under=under)


class OverlaidIndex:
    """Over an index that many sessions share. Give `journal` to the agent: what it is told goes in before the next search."""

    def __init__(self, session: Overlay | SessionIndex) -> None:
        self._session = session
        self._told: dict[str, bytes | None] = {}

    def journal(self, path: str, before: bytes | None, after: bytes | None) -> None:
        self._told[path] = after

    async def search(self, query: str, *, limit: int, under: str | None) -> Sequence[CodeHit]:
        return await _asked(self._search(query, limit, under))

    async def _search(self, query: str, limit: int, under: str | None) -> list[Hit]:
        told, self._told = self._told, {}
        session = self._session
        if isinstance(session, Overlay):

            def search() -> list[Hit]:
                session.put(told)
                return session.search(query, limit=limit, under=under)

            return await asyncio.to_thread(search)
        if told:
            await session.put(told)
        return await session.search(query, limit=limit, under=under)


async def _asked(search: Any) -> list[CodeHit]:
    """Hits in the harness' words. What can't be asked is the model's doing, a service that is gone is ours (promise 8)."""
    try:
        hits = await search
    except IndexRefused as refused:
        raise ToolError(str(refused)) from refused
    except (ServiceLost, EmbedderFailed) as lost:
        raise InfraError(str(lost)) from lost
    return [CodeHit(h.path, h.start_line, h.end_line, h.symbol, h.snippet, h.score) for h in hits]
