"""Saved sessions: lookup by id or as the last session of a folder, lists to choose from, and the agent's last answer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from etude.agent.app.errors import UsageError
from etude.agent.git_links.home import read_entries, read_header, session_files, sessions_home
from etude.core.trace.entry import SessionHeader
from etude.core.trace.unicode import whole

LAST = "last"
# Sessions in a list that the user chooses from.
LISTED = 10
_TITLE_CHARS = 60


@dataclass(frozen=True)
class SavedSession:
    """The file and the header of one session."""

    file: Path
    header: SessionHeader

    @property
    def line(self) -> str:
        """The session's id, the time of its last use, and its first request."""
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.file.stat().st_mtime))
        title = whole(" ".join(str(self.header.facts.get("instruction", "")).split()))
        return f"{self.header.session_id}  {used}  {title[:_TITLE_CHARS]}"


def find_session(named: str, folder: Path) -> tuple[Path, SessionHeader]:
    """The session with this id (or prefix of one), or the last one that worked in the folder. Raises UsageError."""
    if named == LAST:
        matches = sessions_in(folder)
        if not matches:
            raise UsageError(
                f"no session worked in {folder} yet; begin session, or name session of `etude session list`"
            )
        return matches[0].file, matches[0].header
    headers = _all_sessions()
    exact = [session for session in headers if session.header.session_id == named]
    matching = exact or [session for session in headers if session.header.session_id.startswith(named)]
    if len(matching) != 1:
        problem = f"{len(matching)} sessions begin with {named!r}" if matching else f"no session is called {named!r}"
        raise UsageError(f"{problem}; `etude session list` shows them")
    return matching[0].file, matching[0].header


def sessions_in(folder: Path) -> list[SavedSession]:
    """The sessions that worked in a folder, the last used first."""
    here = [session for session in _all_sessions() if session.header.facts.get("workspace") == str(folder.resolve())]
    return sorted(here, key=lambda session: session.file.stat().st_mtime, reverse=True)


def last_answer(file: Path) -> str:
    """The agent's last text in a session. Empty if it only called tools."""
    _, entries = read_entries(file)
    texts = [entry.data["message"]["text"] for entry in entries if entry.type == "completion"]
    return next((text for text in reversed(texts) if text), "")


def _all_sessions() -> list[SavedSession]:
    home = sessions_home()
    return [SavedSession(file, read_header(file)) for file in session_files(home)] if home.is_dir() else []
