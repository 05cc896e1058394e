"""Which lines a session wrote and left: its `edit` entries followed one after another, without those that were undone.

Each edit says where it took and wrote lines, so that a line that the session wrote and later replaced itself is no longer
its own. An edit by somebody else between two of the session's shifts lines unseen; hashes still find them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Sequence

from etude.core.trace.change import Hunk, TextChange, line_hash, split
from etude.core.trace.entry import Entry, SessionHeader


@dataclass(frozen=True)
class WrittenLines:
    """A session's surviving lines: path -> hashes, in order of their place."""

    session_id: str
    policy: str
    harness: str
    lines: dict[str, list[str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self.lines.values()))


@dataclass(frozen=True)
class Span:
    """Lines `start_line` to `end_line` of a file, from 1 and both included, that one session wrote."""

    session_id: str
    start_line: int
    end_line: int
    text: str


def written_lines(header: SessionHeader, entries: Sequence[Entry]) -> WrittenLines:
    """What the session's edits left behind."""
    undone = {number for entry in entries if entry.type == "undo" for number in entry.data["edits"]}
    files: dict[str, list[tuple[int, str]]] = {}
    for entry in entries:
        if entry.type == "edit" and entry.id not in undone:
            hunks = [Hunk.from_json(row) for row in entry.data["hunks"]]
            path = entry.data["path"]
            files[path] = [] if entry.data["kind"] == "delete" else _after(files.get(path, []), hunks)
    lines = {path: [known for _, known in sorted(owned)] for path, owned in files.items() if owned}
    return WrittenLines(header.session_id, header.policy, header.harness, lines)


def _after(owned: list[tuple[int, str]], hunks: list[Hunk]) -> list[tuple[int, str]]:
    """Owned lines (number, hash) after an edit: those it replaced go, the others move, those it wrote come."""
    kept: list[tuple[int, str]] = []
    for number, known in owned:
        moved = number
        for hunk in hunks:
            if hunk.old_start <= number < hunk.old_start + hunk.old_lines:
                break
            if number >= hunk.old_start + hunk.old_lines:
                moved += hunk.new_lines - hunk.old_lines
        else:
            kept.append((moved, known))
    return kept + [(hunk.new_start + i, known) for hunk in hunks for i, known in enumerate(hunk.lines)]


def attribute(change: TextChange, sessions: Sequence[WrittenLines]) -> list[Span]:
    """Which of the lines that a commit added each session wrote. Later sessions come first where several wrote the same.

    Short lines (`}`, `else:`, blank ones) belong to every author: they count only next to a line of the same session.
    """
    texts = split(change.after)
    owners: dict[int, str] = {}
    added = [range(hunk.new_start, hunk.new_start + hunk.new_lines) for hunk in change.hunks()]
    known = [(s.session_id, frozenset(s.lines.get(change.path, ()))) for s in reversed(sessions)]
    for block in added:
        for number in block:
            found = line_hash(texts[number - 1])
            owner = next((name for name, hashes in known if found in hashes), None)
            if owner is not None:
                owners[number] = owner
        _drop_lonely(owners, block, texts)
    return _spans(owners, texts)


def is_short(line: str) -> bool:
    """Whether a line says too little to be anybody's."""
    return sum(char.isalnum() for char in line) < 6


def _drop_lonely(owners: dict[int, str], block: range, texts: Sequence[str]) -> None:
    """Short lines stay with a session only in a run that holds a telling line of it."""
    for number in block:
        if number in owners and is_short(texts[number - 1]):
            sides = (_telling(owners, number, step, texts) for step in (-1, 1))
            if owners[number] not in sides:
                del owners[number]


def _telling(owners: dict[int, str], number: int, step: int, texts: Sequence[str]) -> str | None:
    """The owner of the next telling line on one side, if the lines up to it are owned too."""
    at = number + step
    while at in owners:
        if not is_short(texts[at - 1]):
            return owners[at]
        at += step
    return None


def _spans(owners: dict[int, str], texts: Sequence[str]) -> list[Span]:
    spans: list[Span] = []
    for number in sorted(owners):
        if spans and spans[-1].end_line == number - 1 and spans[-1].session_id == owners[number]:
            spans[-1] = Span(owners[number], spans[-1].start_line, number, f"{spans[-1].text}\n{texts[number - 1]}")
        else:
            spans.append(Span(owners[number], number, number, texts[number - 1]))
    return spans
