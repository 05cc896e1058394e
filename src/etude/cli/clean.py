"""`etude clean`: remove run directories, or one stage of a run so that it is made again."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.run.lock import RunBusy, holder

_MARK = "ledger.jsonl"  # every run directory has one, and hardly anything else does


class CleanError(Exception):
    """Something asked to be removed is no run, or nobody agreed to it."""


def clean(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="Run directories. Default: all in runs/.")
    ] = None,
    stage: Annotated[str | None, typer.Option("--stage", help="Remove this stage's output only.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, remove nothing.")] = False,
    json: Json = False,
) -> Answer:
    """Remove run directories. Asks first; a run in progress is refused."""
    targets = _targets(runs, stage)
    found = [{"path": str(path), "bytes": _size_bytes(path)} for path in targets]
    listing = "\n".join(f"{entry['path']}  {entry['bytes'] / 1e6:.1f} MB" for entry in found)
    if not targets:
        return Answer({"removed": [], "bytes": 0}, "nothing to remove")
    if dry_run:
        return Answer({"would_remove": found, "removed": []}, f"would remove\n{listing}")
    if not yes and not _agreed(listing, json):
        return Answer({"removed": [], "bytes": 0}, "nothing removed")
    for path in targets:
        shutil.rmtree(path)
    return Answer({"removed": found, "bytes": sum(entry["bytes"] for entry in found)}, f"removed\n{listing}")


def _targets(runs: list[Path] | None, stage: str | None) -> list[Path]:
    folders = runs if runs else sorted(p.parent for p in Path("runs").glob(f"*/{_MARK}"))
    for folder in folders:
        if not (folder / _MARK).is_file():
            raise CleanError(f"{folder} is no run directory (it has no {_MARK}); nothing was removed")
        busy = holder(folder)
        if busy is not None:
            raise RunBusy(f"{folder} is in use by process {busy}; stop it first")
    from etude.run.graph import GRAPH, names

    if stage is None:
        return folders
    if stage not in names(GRAPH):
        raise CleanError(f"there is no stage {stage!r}; the stages are {', '.join(names(GRAPH))}")
    return [place for f in folders for place in (f / stage, f / f"{stage}.previous") if place.is_dir()]


def _agreed(listing: str, json: bool) -> bool:
    if json or not sys.stdin.isatty():
        raise CleanError("nobody is here to be asked; say --yes to remove, --dry-run to see what would go")
    return typer.confirm(f"remove\n{listing}\n?", err=True)


def _size_bytes(folder: Path) -> int:
    return sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir())
