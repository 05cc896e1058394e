"""A session's line to the index service. Same words as Overlay, awaited.

The client keeps the session's changed files, so that it can open the line again after the service was restarted and say them once more. If
the index has moved on meanwhile it refuses instead: half of a session must not see one repository and half another.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.agent.code_index.base import Base
from etude.agent.code_index.errors import EmbedderFailed, IndexRefused, NotBuilt, ServiceLost
from etude.agent.code_index.hit import Hit
from etude.agent.code_index.service import LONGEST_LINE_BYTES

# A query takes milliseconds and an update of a large repository a minute; what takes longer hangs.
TIMEOUT_S = 180.0
ERRORS = {error.__name__: error for error in (IndexRefused, NotBuilt, EmbedderFailed, ServiceLost)}


class IndexClient:
    """`over`: which folder, if the service has several, or a base, which is built if it is not there. Calls may overlap; they are
    sent one by one."""

    def __init__(self, socket: Path, over: Path | Base | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._socket, self._over, self._timeout_s = socket, over, timeout_s
        self._changed: dict[str, str | bytes | None] = {}
        self._generation: int | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Pins the session's view now rather than at its first question. Raises ServiceLost, IndexRefused."""
        async with self._lock:
            try:
                if self._streams is None:
                    await self._connect()
            except (ConnectionResetError, BrokenPipeError) as error:
                raise ServiceLost(f"{error} while a session opened; its log says why") from error

    async def search(
        self, query: str, *, limit: int = 10, under: str | None = None, language: str | None = None
    ) -> list[Hit]:
        """As Index.search. Raises ServiceLost if there is no service."""
        found = await self._call("search", query=query, limit=limit, under=under, language=language)
        return [Hit(**hit) for hit in found]

    async def put(self, files: Mapping[str, str | bytes | None]) -> dict[str, str]:
        """As Overlay.put."""
        skipped = (await self._call("put", **_as_json(files)))["skipped"]
        self._changed.update(files)
        return skipped

    async def update(self) -> dict[str, Any]:
        """Brings the folder's index up to date for sessions that begin later."""
        return await self._call("update")

    async def stats(self) -> dict[str, Any]:
        return await self._call("stats")

    async def close(self) -> None:
        """The session's overlay goes."""
        if self._streams is not None:
            writer = self._streams[1]
            self._streams = None
            writer.close()

    async def _call(self, method: str, **params: Any) -> Any:
        async with self._lock:
            if self._streams is not None:
                with contextlib.suppress(
                    ConnectionResetError, BrokenPipeError
                ):  # an old line: the service may be there again
                    return await self._ask(method, params)
            try:
                await self._connect()
                return await self._ask(method, params)
            except (ConnectionResetError, BrokenPipeError) as error:
                raise ServiceLost(f"{error} over {method}; its log says why") from error

    async def _connect(self) -> None:
        """Opens the line, and says what the session changed before."""
        try:
            self._streams = await asyncio.open_unix_connection(str(self._socket), limit=LONGEST_LINE_BYTES)
        except OSError as error:
            raise ServiceLost(f"{self._socket}: {error}; start it with `etude index serve`") from error
        try:
            await self._begin()
        except (IndexRefused, ConnectionError):
            await self.close()  # a line without its session must not be used
            raise

    async def _begin(self) -> None:
        opened = await self._opened()
        if self._generation not in (None, opened["generation"]):
            raise ServiceLost(
                f"{self._socket}: the index went from generation {self._generation} to {opened['generation']} within a session; "
                "start the session again"
            )
        self._generation = opened["generation"]
        if self._changed:
            await self._ask("put", _as_json(self._changed))

    async def _opened(self) -> dict[str, Any]:
        if not isinstance(self._over, Base):
            return await self._ask("open", {} if self._over is None else {"root": str(self._over)})
        try:
            return await self._ask("open", {"base": self._over.digest})
        except NotBuilt:
            await self._ask("build", _as_json(self._over.files))
            return await self._ask("open", {"base": self._over.digest})

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        """One request and its answer; a line on which that was broken off is closed, so that no answer meets a later question."""
        assert self._streams is not None  # _connect made them
        reader, writer = self._streams
        answered = False
        try:
            async with asyncio.timeout(self._timeout_s):
                writer.write(json.dumps({"method": method, "params": params}).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
            answered = line.endswith(b"\n")
        except TimeoutError:
            raise ServiceLost(f"{self._socket}: no answer to {method} within {self._timeout_s:g} s") from None
        finally:
            if not answered:
                await self.close()
        if not answered:
            raise ConnectionResetError(f"{self._socket}: the service went away")
        reply = json.loads(line)
        if "error" in reply:
            raise ERRORS[reply["error"]["type"]](reply["error"]["message"])
        return reply["result"]


def _as_json(files: Mapping[str, str | bytes | None]) -> dict[str, Any]:
    text = {path: content for path, content in files.items() if not isinstance(content, bytes)}
    raw = {path: base64.b64encode(content).decode() for path, content in files.items() if isinstance(content, bytes)}
    return {"files": text, "base64": raw}
