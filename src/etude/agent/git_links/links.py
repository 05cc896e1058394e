"""Ties commits to the sessions whose edits they hold: a git note, an Agent Trace record next to the session, a `link` entry.

`link_commit` finds the lines by their hashes, so that it works after the fact and for commits that a person made; `linked`
finds them again after an amend or a rebase, and says which are lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Sequence

from etude.agent.git_links.agent_trace import (
    Record,
    content_hash,
    conversations,
    make_record,
    only_session,
    session_of,
    sessions_in,
)
from etude.agent.git_links.git import commit_changes, file_text, git
from etude.agent.git_links.notes import read_note, write_note
from etude.agent.git_links.written import Span, WrittenLines, attribute, written_lines
from etude.core.files import replace_file
from etude.core.trace.change import split
from etude.core.trace.entry import Entry, SessionHeader
from etude.core.trace.writer import SessionBusy, add_entry

SUFFIX = ".agent-trace.jsonl"


@dataclass(frozen=True)
class LinkedLines:
    """Lines of a commit and the session that wrote them. exact: where the record says; moved: the same text elsewhere in
    the file; lost: not in this commit any more (the lines are those of the record's revision)."""

    path: str
    session_id: str
    start_line: int
    end_line: int
    state: Literal["exact", "moved", "lost"]


@dataclass(frozen=True)
class LinkReport:
    """What came of linking a commit. `busy` are sessions still being written: their own file got no `link` entry."""

    commit: str
    lines: dict[str, int]  # session -> lines of the commit it wrote
    added: int  # lines the commit added to text files
    busy: tuple[str, ...] = ()


Found = tuple[Path, SessionHeader, list[Entry]]


def link_commit(repository: Path, commit: str, sessions: Sequence[Found]) -> LinkReport:
    """Write note, records and entries; without any line of a session's nothing is written. Linking again changes nothing."""
    own = [in_repository(repository, header, entries) for _, header, entries in sessions]
    changes = commit_changes(repository, commit)
    spans: dict[str, list[Span]] = {change.path: attribute(change, own) for change in changes}
    added = sum(change.added for change in changes)
    if not any(spans.values()):
        return LinkReport(commit, {}, added)
    at_unix_s = float(git(repository, "show", "-s", "--format=%ct", commit))
    named = {span.session_id for found in spans.values() for span in found}
    record = make_record(commit, at_unix_s, spans, [session for session in own if session.session_id in named])
    write_note(repository, commit, record)
    counts = sessions_in(record)
    busy = []
    for file, header, entries in sessions:
        if header.session_id in counts:
            _merge_record(file, record, header.session_id)
            try:
                _tell(file, header, entries, repository, record)
            except SessionBusy:
                busy.append(header.session_id)
    return LinkReport(commit, counts, added, tuple(busy))


def link_lines(repository: Path, commit: str) -> list[LinkedLines]:
    """Which session wrote which lines of a commit, by its note. The commit's own record counts before those that came
    with a rewrite."""
    records = read_note(repository, commit)
    records.sort(key=lambda record: record["vcs"]["revision"] != commit)
    places: list[LinkedLines] = []
    named_sessions: set[str] = set()
    for record in records:
        found = [place for place in _places(repository, commit, record) if place.session_id not in named_sessions]
        places += found
        named_sessions |= {place.session_id for place in found}
    return sorted(places, key=lambda place: (place.path, place.start_line))


def _places(repository: Path, commit: str, record: Record) -> list[LinkedLines]:
    texts: dict[str, list[str]] = {}
    places = []
    for path, conversation in conversations(record):
        if path not in texts:
            texts[path] = split(file_text(repository, commit, path))
        for span in conversation["ranges"]:
            start, end = span["start_line"], span["end_line"]
            found = _find(texts[path], start, end - start + 1, span.get("content_hash", ""))
            state = "lost" if found is None else "exact" if found == start else "moved"
            at = start if found is None else found
            places.append(LinkedLines(path, session_of(conversation), at, at + end - start, state))
    return places


def _find(lines: list[str], start: int, count: int, wanted: str) -> int | None:
    """The line at which `count` lines have this hash, nearest to `start`."""
    starts = sorted(range(1, len(lines) - count + 2), key=lambda at: abs(at - start))
    return next((at for at in starts if content_hash("\n".join(lines[at - 1 : at - 1 + count])) == wanted), None)


def in_repository(repository: Path, header: SessionHeader, entries: Sequence[Entry]) -> WrittenLines:
    """A session's lines, by paths from the repository's root."""
    found = written_lines(header, entries)
    place = Path(header.facts.get("workspace") or repository).resolve()
    inside = place.relative_to(repository).as_posix() if repository in place.parents else "."
    if inside == ".":
        return found
    return WrittenLines(
        found.session_id, found.policy, found.harness, {f"{inside}/{p}": h for p, h in found.lines.items()}
    )


def _merge_record(file: Path, record: Record, session_id: str) -> None:
    """Keep the session's own part of the record next to it, once a revision: the part forgotten with it names no other session."""
    own = only_session(record, session_id)
    assert own is not None, "only sessions that the record names are passed"
    path = file.with_suffix(SUFFIX)
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rows = [found for found in known if found["vcs"]["revision"] != record["vcs"]["revision"]]
    replace_file(path, "".join(json.dumps(row) + "\n" for row in [*rows, own]))


def _tell(file: Path, header: SessionHeader, entries: Sequence[Entry], repository: Path, record: Record) -> None:
    """The session's own entry, unless it has one for this record."""
    if any(entry.type == "link" and entry.data["record"] == record["id"] for entry in entries):
        return
    mine = [(path, found) for path, found in conversations(record) if session_of(found) == header.session_id]
    data = {
        "vcs": "git",
        "repository": str(repository),
        "commit": record["vcs"]["revision"],
        "record": record["id"],
        "lines": sessions_in(record)[header.session_id],
        "paths": sorted({path for path, _ in mine}),
    }
    add_entry(file, "link", data)
