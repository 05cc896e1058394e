"""`etude session list`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.gist import gist, length_text, worth
from etude.cli.session.places import PlacesOrHome, any_session, at_home, session_files

if TYPE_CHECKING:
    from etude.core.trace.session import Session

# Enough of a request to know it again.
ASKED_CHARS = 70


def list_sessions(
    places: PlacesOrHome = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows to print.")] = 40,
    json: Json = False,
) -> Answer:
    """List sessions with their task, length, policy versions and reward."""
    from etude.core.trace.reader import read_session

    home = at_home(None)
    if not places and not (home.is_dir() and any_session(home)):
        text = f"no sessions yet in {home}; `etude agent` begins one, `etude session import LOG` brings another agent's"
        return Answer({"total": 0, "sessions": []}, text)
    files = [file for place in places or [home] for file in session_files(place)]
    rows = [_row(file, read_session(file)) for file in files[:limit]]
    lines = [_line(row) for row in rows]
    lines += [f"… {len(files)} in all; --limit shows more"] if len(files) > limit else []
    return Answer({"total": len(files), "sessions": rows}, "\n".join(lines))


def _row(file: Path, session: Session) -> dict[str, Any]:
    header = session.header
    row = {"session_id": header.session_id, "policy": header.policy, "created_unix_s": header.created_unix_s}
    ends = session.of("end")
    return {
        "file": str(file),
        **row,
        **gist(session),
        "instruction": header.facts.get("instruction", ""),
        "end": ends[-1].data["reason"] if ends else None,
    }


def _line(row: dict[str, Any]) -> str:
    """A session of a run by its task and worth, one of use by what was asked."""
    from etude.cli.session.transcript import clean

    if row["task_id"]:
        return clean(f"{row['file']}  {row['task_id']}  {length_text(row)}, {worth(row)}")
    began = datetime.fromtimestamp(row["created_unix_s"], UTC).strftime("%Y-%m-%d %H:%M")
    asked = " ".join(row["instruction"].split())[:ASKED_CHARS]
    return clean(f"{row['session_id']}  {began}  {row['turns']} turns, {row['end'] or 'no end yet'}  {asked}")
