"""Where the sessions of a person's use lie, and which of them belong to a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

from etude.core.trace.entry import FORMAT_VERSION, Entry, SessionHeader
from etude.core.trace.migrations import steps_from
from etude.core.trace.reader import header_of, parse_line
from etude.core.trace.tail import SessionTail

# How a session file begins, and no other JSON lines (see trace.writer).
FIRST_BYTES = b'{"type":"session"'
# Endings of files next to a session that are no session and no other agent's log.
OWN_SUFFIXES = (".undo.jsonl", ".agent-trace.jsonl")


def sessions_home() -> Path:
    """`$ETUDE_SESSIONS`, else `etude/sessions` in `$XDG_STATE_HOME`, else in `~/.local/state` (XDG base directories)."""
    if chosen := os.environ.get("ETUDE_SESSIONS"):
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "etude" / "sessions"


def is_own_file(file: Path) -> bool:
    """Whether a file of JSON lines is one next to sessions of use that is none: replaced texts, links, signals."""
    return file.name.endswith(OWN_SUFFIXES) or (file.parent.name, file.name) == ("signals", "signals.jsonl")


def session_files(home: Path) -> list[Path]:
    """The session files under a folder, in order."""
    return [file for file in sorted(home.rglob("*.jsonl")) if is_session(file)]


def is_session(file: Path) -> bool:
    """Whether a file begins as session files do."""
    with open(file, "rb") as opened:
        return opened.read(len(FIRST_BYTES)) == FIRST_BYTES


def read_entries(file: Path) -> tuple[SessionHeader, list[Entry]]:
    """A session without its tokens. Raises SessionError, FileNotFoundError."""
    tail = SessionTail(file)
    entries = tail.read()
    if tail.header is None:
        raise FileNotFoundError(f"{file} holds no whole session header")
    return tail.header, entries


def read_header(file: Path) -> SessionHeader:
    """A session's first line alone: many are looked at to find one. Raises SessionError."""
    with open(file, "rb") as opened:
        row = parse_line(opened.readline(), f"{file}:1")
    for step in steps_from(row.get("version")):
        row = step(row)
    return header_of({**row, "version": FORMAT_VERSION})


def sessions_of(home: Path, workspace: Path) -> Iterator[tuple[Path, SessionHeader, list[Entry]]]:
    """The sessions that worked in a folder or below it, oldest first."""
    root = workspace.resolve()
    headers = [(file, read_header(file)) for file in session_files(home)]
    for file, header in sorted(headers, key=lambda session: session[1].created_unix_s):
        place = header.facts.get("workspace")
        if place and (Path(place).resolve() == root or root in Path(place).resolve().parents):
            yield file, *read_entries(file)
