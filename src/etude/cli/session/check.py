"""`etude session check`: whether a file keeps to the published format."""

from __future__ import annotations

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.places import Places, session_files


def check(places: Places, json: Json = False) -> Answer:
    """Check session files against the published schema (docs/session-format.md); exits 1 if one breaks it."""
    from etude.core.trace.schema import check_file

    files = [file for place in places for file in session_files(place)]
    rows = [{"file": str(file), "objections": found} for file in files if (found := check_file(file))]
    lines = [f"{row['file']}: {text}" for row in rows for text in row["objections"]]
    lines.append(f"{len(files)} sessions: {f'{len(rows)} break the format' if rows else 'all keep to the format'}")
    return Answer({"sessions": len(files), "broken": rows}, "\n".join(lines), int(bool(rows)))
