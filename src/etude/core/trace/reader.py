"""Reads a session back, also while it is being written. A torn last line or block is left out, as is every entry after the
first one that lost its tokens: what remains is a session that ended earlier, never one with holes."""

from __future__ import annotations

import json
from pathlib import Path

from etude.core.trace.block import unpack_routes, unpack_tokens
from etude.core.trace.entry import FORMAT_VERSION, Entry, SessionHeader
from etude.core.trace.migrations import MIGRATIONS, Row, SessionError, migrate
from etude.core.trace.session import Session


def read_session(path: Path) -> Session:
    """The session of a `.jsonl` file and the token files next to it (a missing one counts as empty).

    The lines are read first: tokens reach the disk before the line that counts them, so that whatever line was there,
    its tokens are too, however fast a writer goes on.
    """
    rows = migrate(read_rows(path), MIGRATIONS, FORMAT_VERSION)
    tokens = unpack_tokens(_bytes(path.with_suffix(".tokens")))
    routes = unpack_routes(_bytes(path.with_suffix(".routes")))
    session = Session(header_of(rows[0]))
    with_tokens: set[int] = set()
    for line, row in enumerate(rows[1:], 2):
        bare = entry_of(row, f"{path}:{line}")
        number, count = row["id"], row.pop("tokens", None)
        if count is not None and (number not in tokens or len(tokens[number].ids) != count):
            break
        # A row that counts no tokens has none, also if a torn turn of the same number left its block.
        own = (tokens[number], routes.get(number)) if count is not None else (None, None)
        if count is not None and bare.parent is not None and bare.parent not in with_tokens:
            raise SessionError(f"{path}:{line}: its parent {bare.parent} is no entry with tokens before it")
        with_tokens |= {number} if count is not None else set()
        session.entries.append(Entry(bare.id, bare.parent, bare.type, bare.at_s, bare.data, *own))
    return session


def header_of(row: Row) -> SessionHeader:
    """The header of a session's first line, already migrated. Raises SessionError for keys that no header has."""
    fields = {key: value for key, value in row.items() if key != "type"}
    try:
        return SessionHeader(**fields)
    except TypeError as error:
        raise SessionError(f"a session header with {', '.join(sorted(fields))}: {error}") from error


def entry_of(row: Row, place: str) -> Entry:
    """The entry of a line without its tokens. Raises SessionError for a line that is none."""
    if missing := [key for key in ("id", "parent", "type", "at_s") if key not in row]:
        raise SessionError(f"{place} has no {', '.join(missing)}: it is no entry of a session")
    data = {key: value for key, value in row.items() if key not in ("type", "id", "parent", "at_s", "tokens")}
    return Entry(row["id"], row["parent"], row["type"], row["at_s"], data)


def read_rows(path: Path) -> list[Row]:
    """The whole lines as they are on disk. Raises SessionError naming the line."""
    lines = path.read_bytes().split(b"\n")
    rows = [
        parse_line(line, f"{path}:{number}") for number, line in enumerate(lines[:-1], 1)
    ]  # the rest is torn, or empty
    if not rows or rows[0].get("type") != "session":
        raise SessionError(f"{path} is not a session: its first line is no session header")
    return rows


def parse_line(line: bytes, place: str) -> Row:
    """A whole line as JSON. Raises SessionError naming the place."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SessionError(f"{place} is not JSON: {line[:60]!r}; the file was changed by hand") from error
    if not isinstance(row, dict):
        raise SessionError(f"{place} is JSON but no object: {line[:60]!r}; the file was changed by hand")
    return row


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
