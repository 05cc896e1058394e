"""`etude session export`: one HTML file of a session, to read or to forward."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.places import File, find_session, vocabulary


def export(
    file: File,
    out: Annotated[Path, typer.Argument(metavar="FILE.html", help="Output file of the page; replaced if it exists.")],
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show every token too, coloured by log probability.")
    ] = False,
    redacted: Annotated[
        bool, typer.Option("--redact", help="Secrets and personal data replaced by placeholders, to forward it.")
    ] = False,
    json: Json = False,
) -> Answer:
    """Write a session as one self-contained HTML file: no script, nothing fetched, tool results folded."""
    from etude.core.trace.reader import read_session
    from etude.evaluate.report.session_page import session_page

    if out.suffix not in (".html", ".htm"):
        raise typer.BadParameter(f"{out} must end in .html")
    if tokens and redacted:
        raise typer.BadParameter("--tokens shows the text as it was said; leave out one of --tokens and --redact")
    file = find_session(file)
    session = read_session(file)
    if redacted:
        from etude.agent.git_links.redacted import redact_session as without_secrets

        session = without_secrets(session)
    page = session_page(session, vocabulary(file) if tokens else None)
    out.write_text(page, encoding="utf-8")
    return Answer({"file": str(out), "bytes": len(page.encode())}, f"{out}: {len(page.encode()):,} bytes")
