"""A session on disk: `X.jsonl` (header line, then one entry a line), `X.tokens` and `X.routes` next to it; append-only.

Tokens are written before the line that counts them, so a line on disk always has its tokens. `every` says what a kill may
cost: "line" at most the line being written (what a person's session does), "turn" at most the last turn, "end" all of it
(the cheap choice for rollouts, which are worth nothing torn). `SessionWriter.resume` goes on with a session that ended or
was killed. `write_session` puts down one that was recorded in memory, whole or not at all; `add_entry` adds what is learnt
later. One process writes a session at a time: the file is locked (flock) while it is open.
"""

from __future__ import annotations

import fcntl
import json
import time
from pathlib import Path
from typing import Any, BinaryIO, Literal

from etude.core.files import replace_file
from etude.core.trace.block import pack_routes, pack_tokens
from etude.core.trace.entry import Entry, EntryRoutes, EntryTokens, EntryType, SessionHeader
from etude.core.trace.plain_json import MOST_DEPTH, plain
from etude.core.trace.reader import read_session
from etude.core.trace.session import Recorder, Session

Every = Literal["line", "turn", "end"]
# The order in which buffers reach the disk: tokens before the lines that count them.
_SUFFIXES = (".tokens", ".routes", ".jsonl")
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)  # made once: json.dumps would make one for every line


class SessionBusy(OSError):
    """Another process has the session open for writing."""


class SessionWriter(Recorder):
    """A recorder that also writes. `keep_routes=False` leaves the routes out: they are the bulk and only training reads
    them."""

    def __init__(self, path: Path, header: SessionHeader, *, every: Every = "turn", keep_routes: bool = True) -> None:
        super().__init__(header)
        if path.suffix != ".jsonl":
            raise ValueError(f"a session file ends in .jsonl, not {path.name!r}")
        if path.exists():
            raise FileExistsError(f"{path} exists; a session is written once, choose another session id")
        for suffix in _SUFFIXES:  # tokens reach the disk first: a kill may have left some without their session
            path.with_suffix(suffix).unlink(missing_ok=True)
        self._begin(path, every, keep_routes)
        self._pending[".jsonl"] += _header_line(header)

    def _begin(self, path: Path, every: Every, keep_routes: bool) -> None:
        self.path = path
        self._every: Every = every
        self._keep_routes = keep_routes
        self._pending: dict[str, bytearray] = {suffix: bytearray() for suffix in _SUFFIXES}
        self._files: dict[str, BinaryIO] = {}

    @classmethod
    def resume(cls, path: Path, *, every: Every = "turn") -> SessionWriter:
        """Goes on with the session at `path`: what a kill tore off is cut away, ids and `at_s` continue. A session of an
        older format is rewritten in the present one first. Routes are kept if they were. Raises SessionBusy, SessionError."""
        with _locked(path):
            session = read_session(path)
            if _version_on_disk(path) != session.header.version:
                _write_lines(path, session)  # tokens and routes have the same form in every format
            _cut(path, session)
        writer = cls.__new__(cls)
        Recorder.__init__(writer, session.header)
        writer.session = session
        writer._start = time.monotonic() - (session.entries[-1].at_s if session.entries else 0.0)
        writer._begin(path, every, path.with_suffix(".routes").exists())
        return writer

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
        if self._every == "line":
            self._write()
        return number

    def flush(self) -> None:
        if self._every != "end":
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
                    self._files[suffix] = _open(self.path.with_suffix(suffix), "ab", lock=suffix == ".jsonl")
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
    _write_lines(path, session)


def _write_lines(path: Path, session: Session) -> None:
    """All lines at once: what lies at `path` is replaced by a rename."""
    replace_file(path, b"".join([_header_line(session.header), *map(_entry_line, session.entries)]))


def add_verdict(path: Path, data: dict[str, Any]) -> None:
    """Append a verdict to a session file, once."""
    add_entry(path, "verdict", data)


def add_entry(path: Path, type: EntryType, data: dict[str, Any]) -> None:
    """Append an entry without tokens to a session that is not being written: what repeats the last entry (work done again
    after a kill) is left out. Raises SessionBusy."""
    with _locked(path) as file:
        text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        last = json.loads(whole[whole.rfind(b"\n", 0, -1) + 1 :])
        if last["type"] == type and data.items() <= last.items():
            return
        entry = Entry(last.get("id", -1) + 1, None, type, last.get("at_s", 0.0), data)
        file.truncate(len(whole))  # a line torn by a kill was never part of the session
        file.seek(len(whole))
        _write_all(file, bytearray(_entry_line(entry)))


def _locked(path: Path) -> BinaryIO:
    return _open(path, "r+b", lock=True)


def _open(path: Path, mode: Literal["ab", "r+b"], *, lock: bool) -> BinaryIO:
    file = open(path, mode, buffering=0)
    if lock:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise SessionBusy(
                f"{path} is being written by another process; wait until that session has ended"
            ) from error
    return file  # pyright: ignore[reportReturnType] - an unbuffered binary file is one


def _version_on_disk(path: Path) -> object:
    with open(path, "rb") as file:
        return json.loads(file.readline())["version"]


def _cut(path: Path, session: Session) -> None:
    """Cut the three files to what the session holds: blocks and lines are written in order and always alike."""
    lines = path.read_bytes().split(b"\n")[: 1 + len(session.entries)]
    sizes = {
        ".jsonl": sum(len(line) + 1 for line in lines),
        ".tokens": sum(len(pack_tokens(e.id, e.tokens)) for e in session.entries if e.tokens is not None),
        ".routes": sum(len(pack_routes(e.id, e.routes)) for e in session.entries if e.routes is not None),
    }
    for suffix, size in sizes.items():
        file = path.with_suffix(suffix)
        if file.exists():
            with open(file, "r+b") as opened:
                opened.truncate(size)


def _header_line(header: SessionHeader) -> bytes:
    return _line({"type": "session", **vars(header)})


def _entry_line(entry: Entry) -> bytes:
    row = entry.to_json()
    return _line(row if entry.tokens is None else row | {"tokens": len(entry.tokens.ids)})


def _line(row: dict[str, Any]) -> bytes:
    """Strict JSON: a number that is not finite becomes null."""
    try:
        text = _JSON.encode(row)
    except ValueError:
        text = _JSON.encode(plain(row, 2 * MOST_DEPTH))
    return text.encode() + b"\n"
