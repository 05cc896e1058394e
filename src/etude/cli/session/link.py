"""`etude session link`: which session wrote which lines of a commit, and the tie between them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.places import Home, Repository, at_home

if TYPE_CHECKING:
    from etude.agent.git_links.links import Found, LinkReport


def link(
    commit: Annotated[str, typer.Argument(help="A commit, by any name git knows.")] = "HEAD",
    write: Annotated[
        bool, typer.Option("--write", help="Find the sessions that wrote its lines, and tie them to it.")
    ] = False,
    session: Annotated[
        list[Path] | None,
        typer.Option("--session", metavar="FILE", help="Session to look at; repeatable. Default: all."),
    ] = None,
    install_hook: Annotated[
        bool, typer.Option("--install-hook", help="Link every commit of this repository as it is made.")
    ] = False,
    repository: Repository = Path("."),
    home: Home = None,
    json: Json = False,
) -> Answer:
    """Show which session wrote which lines of a commit (`git blame` for sessions), or write that down with --write."""
    from etude.agent.git_links.git import commit_id
    from etude.agent.git_links.git import repository as root_of

    root = root_of(repository)
    if install_hook:
        from etude.agent.git_links.git import install_hook as install

        path = install(root)
        return Answer({"hook": str(path)}, f"{path}: every commit from now on is linked")
    number = commit_id(root, commit)
    return _write(root, number, session or [], at_home(home)) if write else _show(root, number)


def _show(root: Path, commit: str) -> Answer:
    from etude.agent.git_links.links import link_lines
    from etude.cli.session.transcript import clean

    places = link_lines(root, commit)
    rows = [vars(place) for place in places]
    if not rows:
        text = f"{commit[:12]} has no link: no session of yours wrote its lines, or `etude session link {commit[:12]} --write` was not run"
        return Answer({"commit": commit, "places": []}, text)
    lines = [
        clean(f"{p.path}:{p.start_line}-{p.end_line}  {p.session_id}")
        + ("" if p.state == "exact" else f"  ({p.state})")
        for p in places
    ]
    lost = sum(place.state == "lost" for place in places)
    lines += [f"{lost} of {len(places)} ranges are not in this commit any more: it was rewritten"] if lost else []
    return Answer({"commit": commit, "places": rows}, "\n".join(lines))


def _write(root: Path, commit: str, files: list[Path], home: Path) -> Answer:
    from etude.agent.git_links.home import read_entries, sessions_of
    from etude.agent.git_links.links import link_commit

    found: list[Found] = [(file, *read_entries(file)) for file in files] or [*sessions_of(home, root)]
    done = link_commit(root, commit, found)
    _signal(home, found, done)
    document = {"commit": commit, "sessions": done.lines, "added_lines": done.added, "busy": list(done.busy)}
    total = sum(done.lines.values())
    lines = [
        f"{commit[:12]}: {total} of {done.added} added lines were written by {len(done.lines)} sessions of {len(found)}"
    ]
    lines += [f"{name}: {count} lines" for name, count in done.lines.items()]
    lines += [f"{name} is still going on: the note tells, its own file does not yet" for name in done.busy]
    return Answer(document, "\n".join(lines))


def _signal(home: Path, sessions: list[Found], done: LinkReport) -> None:
    """Lines kept at a commit, where signals are on."""
    from etude.agent.git_links.signals import SignalStore, kept_row
    from etude.agent.git_links.written import written_lines

    store = SignalStore(home)
    for _, header, entries in sessions if store.on else ():
        if header.session_id in done.lines:
            ended_unix_s = header.created_unix_s + max((entry.at_s for entry in entries), default=0.0)
            count = max(written_lines(header, entries).count, done.lines[header.session_id])
            age_s = time.time() - ended_unix_s
            store.add(kept_row(header, "commit", age_s, count, done.lines[header.session_id], done.commit))
