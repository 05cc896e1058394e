"""Sessions that were held before: found by name or as the last of a folder, listed to choose from, and what was said last."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from etude.agent.app.errors import BadUse
from etude.agent.git_links.home import read_entries, read_header, session_files, sessions_home
from etude.core.trace.entry import Header
from etude.core.trace.unicode import whole

LAST = "last"
# What a person looks through.
LISTED = 10
_TITLE_CHARS = 60


@dataclass(frozen=True)
class Past:
    """One session that was held in a folder."""

    file: Path
    header: Header

    @property
    def line(self) -> str:
        """When it was used last and what it was begun with."""
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.file.stat().st_mtime))
        title = whole(" ".join(str(self.header.facts.get("instruction", "")).split()))
        return f"{self.header.session_id}  {used}  {title[:_TITLE_CHARS]}"


def find(named: str, folder: Path) -> tuple[Path, Header]:
    """The session of this id (or the beginning of one), or the last that worked in the folder. Raises BadUse."""
    if named == LAST:
        found = held_in(folder)
        if not found:
            raise BadUse(f"no session worked in {folder} yet; begin one, or name one of `etude session list`")
        return found[0].file, found[0].header
    headers = _all()
    exact = [one for one in headers if one.header.session_id == named]
    matching = exact or [one for one in headers if one.header.session_id.startswith(named)]
    if len(matching) != 1:
        told = f"{len(matching)} sessions begin with {named!r}" if matching else f"no session is called {named!r}"
        raise BadUse(f"{told}; `etude session list` shows them")
    return matching[0].file, matching[0].header


def held_in(folder: Path) -> list[Past]:
    """Those that worked in a folder, the last used first."""
    here = [one for one in _all() if one.header.facts.get("workspace") == str(folder.resolve())]
    return sorted(here, key=lambda one: one.file.stat().st_mtime, reverse=True)


def last_words(file: Path) -> str:
    """What the agent said last in a session; nothing where it only called tools."""
    _, entries = read_entries(file)
    said = [entry.data["message"]["text"] for entry in entries if entry.type == "completion"]
    return next((text for text in reversed(said) if text), "")


def _all() -> list[Past]:
    home = sessions_home()
    return [Past(file, read_header(file)) for file in session_files(home)] if home.is_dir() else []
