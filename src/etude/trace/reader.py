"""Reads a session back. A torn last line or block is left out, as is every entry after the first one that lost its tokens:
what remains is a session that ended earlier, never one with holes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Mapping

from etude.trace.block import unpack_routes, unpack_tokens
from etude.trace.entry import FORMAT_VERSION, Entry, Header
from etude.trace.session import Session

Row = dict[str, Any]
# Version n -> a function that turns one row of version n into one of version n + 1.
MIGRATIONS: dict[int, Callable[[Row], Row]] = {}


class SessionError(ValueError):
    """The file is no session, is broken inside, or comes from a newer version."""


def read_session(path: Path) -> Session:
    """The session of a `.jsonl` file and the token files beside it (a missing one counts as empty)."""
    rows = migrate(_rows(path), MIGRATIONS, FORMAT_VERSION)
    header = {key: value for key, value in rows[0].items() if key != "type"}
    tokens = unpack_tokens(_bytes(path.with_suffix(".tokens")))
    routes = unpack_routes(_bytes(path.with_suffix(".routes")))
    session = Session(Header(**header))
    for row in rows[1:]:
        number, count = row.pop("id"), row.pop("tokens", None)
        if count is not None and (number not in tokens or len(tokens[number].ids) != count):
            break
        kind, parent, at_s = row.pop("type"), row.pop("parent"), row.pop("at_s")
        # A row that counts no tokens has none, also if a torn turn of the same number left its block.
        own = (tokens[number], routes.get(number)) if count is not None else (None, None)
        session.entries.append(Entry(number, parent, kind, at_s, row, *own))
    return session


def migrate(rows: list[Row], migrations: Mapping[int, Callable[[Row], Row]], target: int) -> list[Row]:
    """Rows brought to version `target`, one version at a time; the header row carries the version."""
    version = rows[0].get("version")
    if not isinstance(version, int) or version > target:
        raise SessionError(f"session format {version!r}; this program reads up to {target}: use a newer one")
    for step in range(version, target):
        if step not in migrations:
            raise SessionError(f"session format {version} can no longer be read: no migration from {step}")
        rows = [migrations[step](row) for row in rows]
        rows[0]["version"] = step + 1
    return rows


def _rows(path: Path) -> list[Row]:
    lines = path.read_bytes().split(b"\n")
    rows: list[Row] = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is torn, or empty
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise SessionError(f"{path}:{number} is not JSON: {line[:60]!r}; the file was changed by hand") from error
    if not rows or rows[0].get("type") != "session":
        raise SessionError(f"{path} is not a session: its first line is no session header")
    return rows


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
