"""`etude session forget`: a session and all that was derived from it, gone, with proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.places import Home, NoSessions, at_home


def forget_session(
    session: Annotated[str, typer.Argument(metavar="ID", help="A session's id under the home, or its file.")],
    home: Home = None,
    json: Json = False,
) -> Answer:
    """Remove a session with its side files, links, notes and signals, then look again; exits 1 if anything is left."""
    from etude.link.forget import forget

    place = at_home(home)
    found = forget(_file(session, place), place)
    lines = [
        f"{found.session_id}: {len(found.files)} files, {found.signals} signals and its part of {found.notes} git notes removed",
        f"looked again at {found.looked_at_files} files and {found.looked_at_objects} note objects: "
        + ("nothing of it is left here" if not found.left else f"{len(found.left)} places still name it"),
        *(f"  {line}" for line in found.left),
        "copies that were pushed, exported or made by hand are not looked for",
    ]
    return Answer(vars(found), "\n".join(lines), int(bool(found.left)))


def _file(session: str, home: Path) -> Path:
    """Exactly the session of this id: what is removed is never guessed from a beginning."""
    from etude.link.home import read_header, session_files

    if session.endswith(".jsonl"):
        return Path(session)
    found = next((f for f in session_files(home) if read_header(f).session_id == session), None)
    if found is None:
        raise NoSessions(f"no session {session} lies under {home}; etude session list {home} shows those that do")
    return found
