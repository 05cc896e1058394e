"""Where session files are found: a file, a folder, a run directory with its stages, or a session's id under the home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path, typer.Argument(metavar="FILE|ID", help="A session's .jsonl file, or the id of a session of use.")
]
Places = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Session files, or folders that hold them.")]
PlacesOrHome = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[PATH]...", help="Session files, or folders that hold them. Default: your sessions of use."
    ),
]
Repository = Annotated[
    Path, typer.Option("--repository", metavar="DIR", help="A folder of the repository. Default: this one.")
]
Home = Annotated[
    Path | None,
    typer.Option(
        "--home", metavar="DIR", help="Folder of your own sessions. Default: $ETUDE_SESSIONS, or your state folder."
    ),
]


class NoSessions(Exception):
    """There is nothing to list or replay."""


def session_files(place: Path) -> list[Path]:
    """The file, or the session files under a folder, in order; output set aside by a rerun is left out."""
    from etude.agent.git_links import home

    if not place.is_dir():
        if not place.exists():
            raise FileNotFoundError(f"{place}: there is no such file or folder")
        return [place]
    found = [
        f
        for f in home.session_files(place)
        if not any(part.endswith(".previous") for part in f.relative_to(place).parts)
    ]
    if not found:
        raise NoSessions(
            f"{place} holds no session: runs keep theirs in sessions, rl/sessions, trials/sessions and bench/sessions"
        )
    return found


def any_session(home: Path) -> bool:
    """Whether a folder of sessions of use holds one."""
    from etude.agent.git_links import home as room

    return bool(room.session_files(home))


def find_session(named: Path) -> Path:
    """The session file of this name, or the one session of use whose id is this or begins so."""
    from etude.agent.git_links import home

    if named.is_dir():
        raise NoSessions(f"{named} is a folder; give a session's file: etude session list {named} shows those in it")
    if named.exists() or named.suffix == ".jsonl":
        return named
    root = home.sessions_home()
    ids = {file: home.read_header(file).session_id for file in home.session_files(root)}
    exact = [file for file, found in ids.items() if found == str(named)]
    found = exact or [file for file, number in ids.items() if number.startswith(str(named))]
    if len(found) != 1:
        count = f"{len(found)} sessions begin so" if found else "no session has it"
        raise NoSessions(f"{named} is no file and {count} under {root}; etude session list shows what is there")
    return found[0]


def piles(place: Path) -> list[list[Path]]:
    """The session files of a place: those of a run directory by stage, so that a sample has some of each."""
    files = session_files(place)
    if not (place / "recipe.toml").is_file():
        return [files]
    stages: dict[str, list[Path]] = {}
    for file in files:
        stages.setdefault(file.relative_to(place).parts[0], []).append(file)
    return list(stages.values())


def at_home(home: Path | None) -> Path:
    """The folder of sessions of use: the one named, or the default."""
    from etude.agent.git_links.home import sessions_home

    return home if home is not None else sessions_home()


def vocabulary(file: Path) -> list[str]:
    """The vocabulary stored nearest to the session file."""
    from etude.core.trace.vocabulary import FILE_NAME, read_vocabulary

    folder = next((p for p in file.absolute().parents if (p / FILE_NAME).is_file()), None)
    if folder is None:
        raise NoSessions(f"no {FILE_NAME} lies above {file}, so its tokens can't be shown as text; leave out --tokens")
    return read_vocabulary(folder)
