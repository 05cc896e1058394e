"""`etude session list`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.gist import gist, versions_text, worth
from etude.cli.session.places import PlacesOrHome, at_home, session_files


def list_sessions(
    places: PlacesOrHome = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many to print.")] = 40,
    json: Json = False,
) -> Answer:
    """List sessions with their task, length, policy versions and what they were worth."""
    from etude.trace.reader import read_session

    files = [file for place in places or [at_home(None)] for file in session_files(place)]
    rows: list[dict[str, Any]] = [{"file": str(file), **gist(read_session(file))} for file in files[:limit]]
    lines = [
        f"{row['file']}  {row['task_id']}  {row['turns']} turns, {row['sampled_tokens']} tokens, "
        f"{row['segments']} segments, {versions_text(row['versions'])}, {worth(row)}"
        for row in rows
    ]
    lines += [f"… {len(files)} in all; --limit shows more"] if len(files) > limit else []
    return Answer({"total": len(files), "sessions": rows}, "\n".join(lines))
