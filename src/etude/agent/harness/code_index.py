"""The code index for a session's search tool: it searches the current files of this session only, with one ranking for app and training.

A user's folder is scanned for changes before each search. A rollout uses an overlay over the index of its task's files, and its sandbox
is scanned in the same way, so that equal calls give equal results (`tests/rollout/test_rollout_same_harness.py`). A journal of the tools'
edits would be cheaper, but it would miss changes by commands.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

from etude.agent.code_index.admission import LARGEST_BYTES
from etude.agent.code_index.base import Base
from etude.agent.code_index.errors import EmbedderFailed, IndexRefused, ServiceLost
from etude.agent.code_index.hit import Hit
from etude.agent.code_index.index import Index
from etude.agent.code_index.listing_filter import EXCLUDE, IGNORE, ListingFilter
from etude.agent.code_index.reading import digest_of
from etude.agent.code_index.update import Progress
from etude.agent.code_index.walk import CACHE_MARKS, NEVER
from etude.agent.harness.services import CodeHit
from etude.agent.harness.tools.tool import ToolError
from etude.agent.workspace import scripts
from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.protocol import Operations

# The size of a listing of 100,000 files, more than any rollout has.
MAX_LISTING_BYTES = 16 << 20
LOOK_TIMEOUT_S = 30.0


class SessionIndex(Protocol):
    """A session's connection to an index service (`IndexClient`)."""

    async def put(self, files: Mapping[str, str | bytes | None]) -> dict[str, str]: ...
    async def search(self, query: str, *, limit: int = 10, under: str | None = None) -> list[Hit]: ...


class FolderIndex:
    """The index of the user's folder. The first search waits until the folder is indexed. `progress` is called on another thread."""

    def __init__(self, index: Index, progress: Progress | None = None) -> None:
        self._index = index
        self._progress = progress
        self._updating = asyncio.Lock()

    async def search(self, query: str, *, limit: int, under: str | None) -> Sequence[CodeHit]:
        return await _searched(self._search(query, limit, under))

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
    """A session's overlay over the index of a base that many sessions share. `machine` holds the session's version of the files."""

    def __init__(self, session: SessionIndex, machine: Operations, base: Base) -> None:
        self._session, self._machine = session, machine
        self._looking = asyncio.Lock()
        listing = ListingFilter({p: d.decode(errors="replace") for p, d in base.files.items() if _ignores(p)})
        # Digests of the session's files that the index holds.
        self._held = {p: digest_of(d).hex() for p, d in base.files.items() if listing.keeps(p, len(d))}

    async def search(self, query: str, *, limit: int, under: str | None) -> Sequence[CodeHit]:
        return await _searched(self._search(query, limit, under))

    async def _search(self, query: str, limit: int, under: str | None) -> list[Hit]:
        async with self._looking:
            await self._follow()
        return await self._session.search(query, limit=limit, under=under)

    async def _follow(self) -> None:
        """Send the files that differ from the index. They count as held only after the service has accepted them."""
        tree = await self._listing()
        listing = ListingFilter(tree["ignores"])
        now: dict[str, str] = {p: digest for p, (size, digest) in tree["files"].items() if listing.keeps(p, size)}
        changed: dict[str, bytes | None] = {p: None for p in self._held if p not in now}
        for path, digest in now.items():
            if digest != self._held.get(path):
                changed[path] = await self._read(path)
        if changed:
            await self._session.put(changed)
        self._held = now | {p: digest_of(data).hex() for p, data in changed.items() if data is not None}

    async def _listing(self) -> dict[str, Any]:
        wanted = {"never": sorted(NEVER), "marks": CACHE_MARKS, "largest": LARGEST_BYTES}
        argv = scripts.command("list_tree", json.dumps(wanted))
        try:
            done = await self._machine.run(
                argv, timeout_s=LOOK_TIMEOUT_S, max_output_bytes=MAX_LISTING_BYTES, warm=True
            )
        except UserError as error:
            raise ToolError(f"the workspace can't be looked through: {type(error).__name__}") from error
        if done.timed_out or done.truncated or done.rc != 0:
            raise ToolError("the workspace can't be looked through; take away what a command left in it")
        return json.loads(done.out)

    async def _read(self, path: str) -> bytes | None:
        """Read a file; None if it was deleted meanwhile."""
        try:
            return await self._machine.read(path, max_bytes=LARGEST_BYTES + 1)
        except (UserError, OSError):
            return None


def _ignores(path: str) -> bool:
    return path == EXCLUDE or path.rpartition("/")[2] == IGNORE


async def _searched(search: Coroutine[Any, Any, list[Hit]]) -> list[CodeHit]:
    """Convert hits. An invalid search is a model error, a lost service an infrastructure error (promise 8)."""
    try:
        hits = await search
    except IndexRefused as refused:
        raise ToolError(str(refused)) from refused
    except (ServiceLost, EmbedderFailed) as lost:
        raise InfraError(str(lost)) from lost
    return [CodeHit(h.path, h.start_line, h.end_line, h.symbol, h.snippet, h.score) for h in hits]
