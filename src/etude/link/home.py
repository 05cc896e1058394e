"""Where the sessions of a person's use lie, and which of them belong to a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

from etude.trace.entry import Entry, Header
from etude.trace.tail import SessionTail

# How a session file begins, and no other JSON lines (see trace.writer).
FIRST_BYTES = b'{"type":"session"'


def sessions_home() -> Path:
    """`$ETUDE_SESSIONS`, else `etude/sessions` in `$XDG_STATE_HOME`, else in `~/.local/state` (XDG base directories)."""
    if chosen := os.environ.get("ETUDE_SESSIONS"):
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "etude" / "sessions"


def session_files(home: Path) -> list[Path]:
    """The session files under a folder, in order."""
    return [file for file in sorted(home.rglob("*.jsonl")) if is_session(file)]


def is_session(file: Path) -> bool:
    """Whether a file begins as session files do."""
    with open(file, "rb") as opened:
        return opened.read(len(FIRST_BYTES)) == FIRST_BYTES


def read_entries(file: Path) -> tuple[Header, list[Entry]]:
    """A session without its tokens. Raises SessionError, FileNotFoundError."""
    tail = SessionTail(file)
    entries = tail.read()
    if tail.header is None:
        raise FileNotFoundError(f"{file} holds no whole session header")
    return tail.header, entries


def sessions_of(home: Path, workspace: Path) -> Iterator[tuple[Path, Header, list[Entry]]]:
    """The sessions that worked in a folder or below it, oldest first."""
    found = [(file, *read_entries(file)) for file in session_files(home)]
    root = workspace.resolve()
    for file, header, entries in sorted(found, key=lambda session: session[1].created_unix_s):
        place = header.facts.get("workspace")
        if place and (Path(place).resolve() == root or root in Path(place).resolve().parents):
            yield file, header, entries
