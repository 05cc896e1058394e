"""`etude session import`: logs of other agents as our sessions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.places import at_home


def bring(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="Log of the other agent; for OpenHands also its events folder.")
    ],
    out: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.jsonl]", help="The session file to write. Default: among your sessions of use."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", help="Format of the log: claude-code, codex, openhands or atif. Default: detected from the log."
        ),
    ] = None,
    json: Json = False,
) -> Answer:
    """Import a log of Claude Code, Codex or OpenHands, or an ATIF trajectory, and say what was mapped, kept and dropped."""
    from etude.agent.importers.read import read_foreign
    from etude.core.trace.writer import write_session

    if out is not None and out.suffix != ".jsonl":
        raise typer.BadParameter(f"{out} must end in .jsonl")
    session = read_foreign(log, agent)
    out = out or at_home(None) / f"{re.sub(r'[^A-Za-z0-9._-]', '-', session.header.session_id)}.jsonl"
    if out.exists():
        raise FileExistsError(f"{out} exists; a session is written once, choose another name")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_session(out, session)
    account = session.header.recipe["import"]
    dropped = ", ".join(f"{count} {reason}" for reason, count in account["dropped"].items()) or "nothing"
    text = (
        f"{out}: session {session.header.session_id}, {account['rows']} lines of {account['agent']} "
        f"{account['agent_version']} as {account['entries']} entries; {account['kept_as_foreign']} kept as they were; "
        f"dropped: {dropped}"
    )
    return Answer({"file": str(out), "session_id": session.header.session_id, **account}, text)
