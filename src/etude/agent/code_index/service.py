"""The index served outside the sandbox: a unix socket, one JSON object a line, as many clients as like.

    {"id": 1, "method": "search", "params": {"query": "retry policy", "limit": 10, "under": null, "language": null}}
    {"id": 1, "result": [{"path": …, "start_line": …, …}]}            {"id": 1, "error": {"type": "IndexRefused", "message": "…"}}

    open    {root}      which of the served folders; may be left out where there is one. The connection's view is pinned from here on
            {base}      or the digest of a base (base.py) that somebody built; an error of type NotBuilt asks to build it
    build   {files, base64}         a base of these files, once for all who give the same
    search  {query, limit, under, language}             put  {files: {path: text or null}, base64: {path: bytes}}
    update  {}          brings the folder's index up to date; connections that are open keep their view
    stats   {}

A connection has an overlay of its own, which goes when it closes: a rollout that dies leaves nothing behind. Whatever a client sends is
answered, or the connection is closed; other clients never notice. Only the socket's owner may connect.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import socketserver
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etude.agent.code_index.bases import Bases
from etude.agent.code_index.errors import EmbedderFailed, IndexRefused
from etude.agent.code_index.index import Index
from etude.agent.code_index.overlay import Overlay
from etude.agent.code_index.workers import cores

# What a client may ask of the index service, checked at the door.


class Params(BaseModel):
    """Unknown names and other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmptyParams(Params):
    """No parameters."""


class OpenParams(Params):
    """One of the served folders, or a base by its digest."""

    root: str | None = None
    base: str | None = None


class SearchParams(Params):
    query: str
    limit: int = 10
    under: str | None = None
    language: str | None = None


class FilesParams(Params):
    """`files`: path -> text, null for deleted; `base64`: path -> bytes that are no UTF-8."""

    files: dict[str, str | None] = {}
    base64: dict[str, str] = {}

    def contents(self) -> dict[str, str | bytes | None]:
        """path -> what the file holds. Raises IndexRefused for what is no base64."""
        found: dict[str, str | bytes | None] = dict(self.files)
        for path, text in self.base64.items():
            try:
                found[path] = base64.b64decode(text, validate=True)
            except ValueError as error:  # binascii.Error is one; letters beyond ASCII raise the plain one
                raise IndexRefused(f"{path}: no base64 ({error})") from error
        return found


class PutParams(FilesParams):
    """Into the session's overlay."""


class BuildParams(FilesParams):
    """Into a base of that content, if there is none yet."""


class IndexRequest(Params):
    id: int | str | None = None
    method: str
    params: dict[str, Any] = Field(default_factory=dict)


METHODS: dict[str, type[Params]] = {
    "open": OpenParams,
    "build": BuildParams,
    "search": SearchParams,
    "put": PutParams,
    "update": EmptyParams,
    "stats": EmptyParams,
}


def read_request(line: bytes) -> IndexRequest:
    """Raises IndexRefused for anything that is no request."""
    try:
        return IndexRequest.model_validate_json(line)
    except ValidationError as error:
        raise IndexRefused(_validation_text(error)) from error


def read_params(request: IndexRequest) -> Params:
    """The parameters as the method's type. Raises IndexRefused."""
    if request.method not in METHODS:
        raise IndexRefused(f"method {request.method!r} is unknown; known are {', '.join(METHODS)}")
    try:
        return METHODS[request.method].model_validate(request.params)
    except ValidationError as error:
        raise IndexRefused(f"{request.method}: {_validation_text(error)}") from error


def _validation_text(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the request'}: {first['msg']}"


# A put of a session's changed files fits; what doesn't is no edit.
LONGEST_LINE_BYTES = 64 << 20
# The kernel's limit on a unix socket's path, its final zero included (unix(7)).
LONGEST_SOCKET_PATH = 108


class Connection:
    """One client: the index it opened, and its overlay."""

    def __init__(self, indexes: Mapping[str, Index], bases: Bases | None, busy: threading.Semaphore) -> None:
        self._indexes, self._bases, self._busy = indexes, bases, busy
        self._index: Index | None = None
        self._overlay: Overlay | None = None

    def answer(self, line: bytes) -> dict[str, Any]:
        """The reply to one line, whatever is in it."""
        number: int | str | None = None
        try:
            request = read_request(line)
            number = request.id
            params = read_params(request)
            # These take long and wait for others: they must not keep searches from their turn.
            with self._busy if request.method not in ("update", "build") else contextlib.nullcontext():
                return {"id": number, "result": self._call(request.method, params)}
        except (IndexRefused, EmbedderFailed) as error:
            return {"id": number, "error": {"type": type(error).__name__, "message": str(error)}}
        except OSError as error:  # a full disk, a folder that went: ours, not the asker's
            return {"id": number, "error": {"type": "ServiceLost", "message": f"the service could not: {error}"}}

    def _call(self, method: str, params: Params) -> Any:
        if isinstance(params, OpenParams):
            return self._open(params.root) if params.base is None else self._open_base(params.base)
        if isinstance(params, BuildParams):
            return {"files": self._require_bases().build(params.contents()).stats()["files"]}
        if self._index is None or self._overlay is None:
            self._open(None)
        assert self._index is not None and self._overlay is not None
        if isinstance(params, SearchParams):
            return [hit.to_json() for hit in self._overlay.search(**params.model_dump())]
        if isinstance(params, PutParams):
            return {"skipped": self._overlay.put(params.contents()), "changed": len(self._overlay.changed)}
        return self._index.update().to_json() if method == "update" else self._index.stats()

    def _open(self, root: str | None) -> dict[str, Any]:
        if root is None and len(self._indexes) != 1:
            raise IndexRefused(f"name the root to open: {', '.join(self._indexes) or 'none is served here'}")
        name = next(iter(self._indexes)) if root is None else str(Path(root).resolve())
        if name not in self._indexes:
            raise IndexRefused(f"{root} is not served here; these are: {', '.join(self._indexes)}")
        return self._begin(name, self._indexes[name])

    def _open_base(self, digest: str) -> dict[str, Any]:
        return self._begin(digest, self._require_bases().index(digest))

    def _begin(self, name: str, index: Index) -> dict[str, Any]:
        self._index, self._overlay = index, index.overlay()
        return {"root": name, "generation": self._overlay.generation}

    def _require_bases(self) -> Bases:
        if self._bases is None:
            raise IndexRefused("this service keeps no bases; it serves folders: open one of them by its root")
        return self._bases


class IndexRequestHandler(socketserver.StreamRequestHandler):
    """Reads lines until the client goes."""

    server: Service

    def handle(self) -> None:
        connection = Connection(self.server.indexes, self.server.bases, self.server.busy)
        try:
            while line := self.rfile.readline(LONGEST_LINE_BYTES + 1):
                whole = len(line) <= LONGEST_LINE_BYTES
                reply = connection.answer(line) if whole else TOO_LONG
                self.wfile.write(json.dumps(reply).encode() + b"\n")
                if not whole:
                    return  # where the next request starts is not known
        except ConnectionError:
            return  # the client went before its answer


TOO_LONG = {
    "id": None,
    "error": {
        "type": "IndexRefused",
        "message": f"a request has at most {LONGEST_LINE_BYTES} bytes; put fewer files at a time",
    },
}


class Service(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Serves until `shutdown`. Context manager; the socket goes at the end."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256  # all rollouts of a step connect at once

    def __init__(self, path: Path, indexes: Sequence[Index], *, bases: Bases | None = None) -> None:
        """Raises IndexRefused where the path is too long or served already."""
        _free(path)
        self.indexes = {str(index.root): index for index in indexes}
        self.bases = bases
        self.busy = threading.Semaphore(cores())  # more at once only hold more memory
        before = os.umask(0o177)  # the socket is its owner's from the first moment
        try:
            super().__init__(str(path), IndexRequestHandler)
        finally:
            os.umask(before)
        self.path = path

    def server_close(self) -> None:
        """Also takes the socket's file away."""
        super().server_close()
        self.path.unlink(missing_ok=True)


def _free(path: Path) -> None:
    """Removes the socket of a dead service; refuses to take a living one's place."""
    if len(os.fsencode(path)) >= LONGEST_SOCKET_PATH:
        raise IndexRefused(
            f"{path} has {len(os.fsencode(path))} bytes; a socket's path has at most {LONGEST_SOCKET_PATH - 1}"
        )
    if not path.is_socket():
        if path.exists():
            raise IndexRefused(f"{path} is no socket; name another path")
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise IndexRefused(f"{path} is served already; stop that service or name another path")
