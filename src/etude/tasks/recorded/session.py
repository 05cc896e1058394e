"""Recorded sessions as the beginnings of tasks: what was asked, where, and which lines came of it.

Ours and those of other agents alike (`etude.agent.importers`), linked to commits or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.agent.git_links.home import is_own_file, is_session, read_entries
from etude.agent.importers.draft import ForeignError
from etude.agent.importers.read import read_foreign
from etude.core.redact.redaction import redact
from etude.core.trace.entry import Entry, SessionHeader
from etude.core.trace.reader import SessionError

# A request that says no more than this is an answer or a slip ("ok", "yes").
FEWEST_CHARS = 8


@dataclass(frozen=True)
class RecordedSession:
    """A session. `request` is the first message of the user as typed, secrets and personal data replaced (`redacted` of them)."""

    file: Path
    header: SessionHeader
    entries: Sequence[Entry]
    request: str
    redacted: int

    @property
    def id(self) -> str:
        return self.header.session_id

    @property
    def workspace(self) -> Path | None:
        place = self.header.facts.get("workspace")
        return Path(place) if place else None


def read_recorded(places: Sequence[Path]) -> tuple[list[RecordedSession], dict[str, str]]:
    """The sessions under files and folders, oldest first, and why others were left out, by file. Raises OSError."""
    found: dict[str, RecordedSession] = {}
    left_out: dict[str, str] = {}
    for file in _files(places):
        try:
            recorded = _read(file)
        except (SessionError, ForeignError, OSError) as error:
            left_out[str(file)] = str(error)
            continue
        except RecursionError:
            left_out[str(file)] = "its JSON is nested deeper than any session's"
            continue
        if len(recorded.request) < FEWEST_CHARS:
            left_out[str(file)] = f"its first request is {recorded.request!r}: too short to be a task"
        elif recorded.id in found:
            left_out[str(file)] = f"the same session as {found[recorded.id].file}"
        else:
            found[recorded.id] = recorded
    return sorted(found.values(), key=lambda one: (one.header.created_unix_s, one.id)), left_out


def _files(places: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"{place}: there is no such file or folder of sessions")
        inside = sorted(path for path in place.rglob("*.json*") if path.is_file()) if place.is_dir() else [place]
        files += [path for path in inside if path.suffix in (".json", ".jsonl") and not is_own_file(path)]
    return files


def _read(file: Path) -> RecordedSession:
    if is_session(file):
        header, entries = read_entries(file)
    else:
        session = read_foreign(file)
        header, entries = session.header, session.entries
    text, counts = redact(str(header.facts.get("instruction") or _first_request(entries)).strip())
    return RecordedSession(file, header, entries, text, counts.total())


def _first_request(entries: Sequence[Entry]) -> str:
    requests = (
        e.data for e in entries if e.type == "message" and e.data.get("role") == "user" and not e.data.get("summary")
    )
    return next((str(data.get("text", "")) for data in requests), "")
