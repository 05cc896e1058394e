"""A session on disk: `X.jsonl` (header line, then one entry a line), `X.tokens` and `X.routes` beside it; append-only.

Tokens are written before the line that counts them, so a line on disk always has its tokens, and a kill costs at most the
last turn. `every="end"` writes once, when the session is over: the cheap choice for rollouts, which are worth nothing torn.
`write_session` puts down one that was recorded in memory, whole or not at all; `add_verdict` adds what is learnt later.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Literal

from etude.trace.block import pack_routes, pack_tokens
from etude.trace.entry import Entry, EntryRoutes, EntryTokens, EntryType, Header
from etude.trace.session import Recorder, Session

# The order in which buffers reach the disk: tokens before the lines that count them.
_SUFFIXES = (".tokens", ".routes", ".jsonl")
_JSON = json.JSONEncoder(separators=(",", ":"))  # made once: json.dumps would make one for every line


class SessionWriter(Recorder):
    """A recorder that also writes. `keep_routes=False` leaves the routes out: they are the bulk and only training reads
    them."""

    def __init__(
        self, path: Path, header: Header, *, every: Literal["turn", "end"] = "turn", keep_routes: bool = True
    ) -> None:
        super().__init__(header)
        if path.suffix != ".jsonl":
            raise ValueError(f"a session file ends in .jsonl, not {path.name!r}")
        if path.exists():
            raise FileExistsError(f"{path} exists; a session is written once, choose another session id")
        for suffix in _SUFFIXES:  # tokens reach the disk first: a kill may have left some without their session
            path.with_suffix(suffix).unlink(missing_ok=True)
        self.path = path
        self._every = every
        self._keep_routes = keep_routes
        self._pending: dict[str, bytearray] = {suffix: bytearray() for suffix in _SUFFIXES}
        self._files: dict[str, BinaryIO] = {}
        self._pending[".jsonl"] += _header_line(header)

    def append(
        self,
        type: EntryType,
        data: dict[str, Any],
        *,
        parent: int | None = None,
        tokens: EntryTokens | None = None,
        routes: EntryRoutes | None = None,
    ) -> int:
        number = super().append(type, data, parent=parent, tokens=tokens, routes=routes)
        entry = self.session.entries[number]
        if tokens is not None:
            self._pending[".tokens"] += pack_tokens(number, tokens)
        if routes is not None and self._keep_routes:
            self._pending[".routes"] += pack_routes(number, routes)
        self._pending[".jsonl"] += _entry_line(entry)
        return number

    def flush(self) -> None:
        if self._every == "turn":
            self._write()

    def close(self) -> None:
        self._write()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _write(self) -> None:
        for suffix, pending in self._pending.items():
            if pending:
                if suffix not in self._files:
                    self._files[suffix] = open(self.path.with_suffix(suffix), "ab", buffering=0)
                _write_all(self._files[suffix], pending)
                pending.clear()


def _write_all(file: BinaryIO, data: bytearray) -> None:
    """An unbuffered file may take a part and say so; what is left then meets the error."""
    written = 0
    while written < len(data):
        written += file.write(data[written:])


def write_session(path: Path, session: Session, *, keep_routes: bool = True) -> None:
    """A finished session as the same files, in place of whatever lies there. `path` appears last, by a rename."""
    path.unlink(missing_ok=True)
    tokens = b"".join(pack_tokens(e.id, e.tokens) for e in session.entries if e.tokens is not None)
    routes = b"".join(pack_routes(e.id, e.routes) for e in session.entries if keep_routes and e.routes is not None)
    for suffix, data in ((".tokens", tokens), (".routes", routes)):
        if data:
            path.with_suffix(suffix).write_bytes(data)
        else:
            path.with_suffix(suffix).unlink(missing_ok=True)
    side = path.with_suffix(".tmp")
    side.write_bytes(b"".join([_header_line(session.header), *map(_entry_line, session.entries)]))
    side.rename(path)


def add_verdict(path: Path, data: dict[str, Any]) -> None:
    """Append a verdict to a session file, once: what repeats the last entry (work done again after a kill) is left out."""
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    last = json.loads(whole[whole.rfind(b"\n", 0, -1) + 1 :])
    if last["type"] == "verdict" and data.items() <= last.items():
        return
    entry = Entry(last.get("id", -1) + 1, None, "verdict", last.get("at_s", 0.0), data)
    with open(path, "r+b") as file:
        file.truncate(len(whole))  # a line torn by a kill was never part of the session
        file.seek(len(whole))
        file.write(_entry_line(entry))


def _header_line(header: Header) -> bytes:
    return _line({"type": "session", **vars(header)})


def _entry_line(entry: Entry) -> bytes:
    row = entry.to_json()
    return _line(row if entry.tokens is None else row | {"tokens": len(entry.tokens.ids)})


def _line(row: dict[str, Any]) -> bytes:
    return _JSON.encode(row).encode() + b"\n"
