"""`etude session forget`: a session and all that was derived from it, gone, with proof."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.places import Home, NoSessions, at_home


def forget_session(
    session: Annotated[str, typer.Argument(metavar="FILE|ID", help="A session's id under the home, or its file.")],
    home: Home = None,
    json: Json = False,
) -> Answer:
    """Remove a session with its side files, links, notes and signals, then look again; exits 1 if anything is left."""
    from etude.agent.git_links.forget import forget

    place = at_home(home)
    file = _file(session, place)
    agents, typed = _of_the_agent(file, place)
    found = forget(file, place)
    lines = [
        f"{found.session_id}: {len(found.files)} files, {found.signals} signals and its part of {found.notes} git notes removed"
        + (f", and agent {', '.join(agents)}" if agents else "")
        + (f", and {typed} typed lines" if typed else ""),
        f"looked again at {found.looked_at_files} files and {found.looked_at_objects} note objects: "
        + ("nothing of it is left here" if not found.left else f"{len(found.left)} places still name it"),
        *(f"  {line}" for line in found.left),
        "copies that were pushed, exported or made by hand are not looked for",
    ]
    return Answer({**vars(found), "agents": agents, "typed": typed}, "\n".join(lines), int(bool(found.left)))


def _of_the_agent(file: Path, home: Path) -> tuple[list[str], int]:
    """What else is a person's of a session of use: an agent's place in the background, by its id, and lines typed at a terminal. Raises
    UsageError for an agent that runs, or whose work was not taken over: then nothing is forgotten."""
    from etude.agent.app.background.control import remove_agent
    from etude.agent.app.background.record import list_agents
    from etude.agent.app.user_files import delete_history
    from etude.agent.git_links.home import read_entries, sessions_home

    header, entries = read_entries(file)
    own = [berth for berth in list_agents() if berth.session_id == header.session_id]
    for berth in own:
        remove_agent(berth)
    said = {entry.data["text"] for entry in entries if entry.type == "message" and entry.data["role"] == "user"}
    typed = delete_history(said) if home == sessions_home() else 0
    return [berth.id for berth in own], typed


def _file(session: str, home: Path) -> Path:
    """Exactly the session of this id: what is removed is never guessed from a beginning."""
    from etude.agent.git_links.home import read_header, session_files

    if session.endswith(".jsonl"):
        return Path(session)
    found = next((f for f in session_files(home) if read_header(f).session_id == session), None)
    if found is None:
        raise NoSessions(f"no session {session} lies under {home}; etude session list {home} shows those that do")
    return found
