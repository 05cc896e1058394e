"""Removes a session with everything that was derived from it, and proves it by looking again.

The files of the session, the Agent Trace record next to it, its signals, its part of every git note and of the notes'
history. What can't be removed from here is named, never passed over: a repository that is gone, a note inside a pack, notes
that were pushed, copies made by hand.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from etude.agent.git_links.agent_trace import session_url
from etude.agent.git_links.git import GitError, repository
from etude.agent.git_links.home import is_session, read_entries
from etude.agent.git_links.notes import blobs_naming, forget_session, still_there
from etude.agent.git_links.signals import SignalStore
from etude.core.trace.entry import Entry, SessionHeader


@dataclass
class RemovalReport:
    """What was removed, and what a second look found. `left` is empty if nothing of the session is left."""

    session_id: str
    files: list[str] = field(default_factory=list)
    signals: int = 0
    notes: int = 0
    looked_at_files: int = 0
    looked_at_objects: int = 0
    left: list[str] = field(default_factory=list)


def forget(file: Path, home: Path) -> RemovalReport:
    """Forget the session in `file`. Safe to repeat after a kill."""
    header, entries = read_entries(file)
    found = RemovalReport(header.session_id)
    for root in _repositories(header, entries, found):
        old = blobs_naming(root, header.session_id)
        found.notes += forget_session(root, header.session_id)
        found.looked_at_objects += len(old)
        stayed = {*still_there(root, old), *blobs_naming(root, header.session_id)}
        found.left += [
            f"{root}: object {number} (in a pack; `git gc --prune=now` removes it)" for number in sorted(stayed)
        ]
    found.signals = SignalStore(home).forget(header.session_id)
    for side in [*side_files(file), file]:  # the session's own file last: until then it can be forgotten again
        shutil.rmtree(side) if side.is_dir() else side.unlink()
        found.files.append(str(side))
    _look(home, found)
    return found


def side_files(file: Path) -> list[Path]:
    """The files next to a session under its name (`X.tokens`, `X.agent-trace.jsonl`, a folder `X`), its own file left aside.
    Of two sessions `X` and `X.Y` a file `X.Y.tokens` is the longer name's."""
    names = [other.stem for other in file.parent.glob("*.jsonl") if is_session(other)]
    siblings = (path for path in sorted(file.parent.iterdir()) if path != file)
    return [path for path in siblings if _owner(path.name, names) == file.stem]


def _owner(name: str, sessions: list[str]) -> str:
    """The session whose name a file's begins with; an empty string if none's does."""
    return max((s for s in sessions if name == s or name.startswith(f"{s}.")), key=len, default="")


def _repositories(header: SessionHeader, entries: list[Entry], found: RemovalReport) -> list[Path]:
    """Where notes may name the session: the repositories of its links, and that of its workspace."""
    linked = [entry.data["repository"] for entry in entries if entry.type == "link"]
    roots: list[Path] = []
    for place in dict.fromkeys([*linked, header.facts.get("workspace") or ""]):
        if not place:
            continue
        try:
            root = repository(Path(place))
        except GitError:
            if place in linked:
                found.left.append(
                    f"{place}: the repository is gone or unreadable; its notes may still name the session"
                )
            continue
        roots += [root] if root not in roots else []
    return roots


def _look(home: Path, found: RemovalReport) -> None:
    """Every file under the home is read for the session's name."""
    needles = json.dumps(found.session_id).encode(), json.dumps(session_url(found.session_id)).encode()
    for path in sorted(home.rglob("*")):
        if path.is_file():
            found.looked_at_files += 1
            data = path.read_bytes()
            if any(needle in data for needle in needles):
                found.left.append(f"{path} names the session")
