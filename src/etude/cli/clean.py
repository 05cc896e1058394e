"""`etude clean`: remove run directories, or one stage of a run so that it is made again."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.status.completion import complete_run_path


class CleanError(Exception):
    """Something asked to be removed is no run, or no person agreed to it."""


def clean(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...", autocompletion=complete_run_path, help="Run directories. Default: all in runs/."
        ),
    ] = None,
    stage: Annotated[str | None, typer.Option("--stage", help="Remove this stage's output only.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed and remove nothing.")] = False,
    json: Json = False,
) -> Answer:
    """Remove the files that runs wrote into their directories. Asks first, refuses a run in progress, and keeps files that no run wrote."""
    from etude.pipeline.run.manifest import remove

    targets = _targets(runs, stage)
    found = [target.row() for target in targets]
    kept = [str(path) for target in targets for path in target.others]
    listing = "\n".join(f"{entry['path']}  {entry['bytes'] / 1e6:.1f} MB" for entry in found)
    staying = "".join(f"\nkept, as no run made it: {path}" for path in kept)
    if not targets:
        return Answer({"removed": [], "kept": [], "bytes": 0}, "nothing to remove")
    if dry_run:
        document = {"would_remove": found, "would_keep": kept, "removed": []}
        return Answer(document, f"would remove\n{listing}{staying.replace('kept,', 'would keep,')}")
    if not yes and not _agreed(listing + staying, json):
        return Answer({"removed": [], "kept": kept, "bytes": 0}, "nothing removed")
    for target in targets:
        remove(target.run, target.below)
    document = {"removed": found, "kept": kept, "bytes": sum(entry["bytes"] for entry in found)}
    return Answer(document, f"removed\n{listing}{staying}")


@dataclass(frozen=True)
class Target:
    """What is to be removed of a run: all that it made, or what it made in these folders."""

    run: Path
    path: Path
    below: tuple[str, ...] | None
    files: list[Path]
    others: list[Path]

    def row(self) -> dict[str, Any]:
        return {"path": str(self.path), "bytes": sum(path.lstat().st_size for path in self.files)}


def _targets(runs: list[Path] | None, stage: str | None) -> list[Target]:
    from etude.pipeline.run.graph import GRAPH, names
    from etude.pipeline.run.lock import RunBusy, holder
    from etude.pipeline.run.manifest import PREVIOUS, is_run_directory, split_owned

    folders = runs if runs else sorted(path for path in Path("runs").glob("*") if is_run_directory(path))
    for folder in folders:
        if folder.is_symlink():
            raise CleanError(f"{folder} is a link to {folder.resolve()}; name the folder itself; nothing was removed")
        if not is_run_directory(folder):
            raise CleanError(f"{folder} is no run directory; nothing was removed")
        busy = holder(folder)
        if busy is not None:
            raise RunBusy(f"{folder} is in use by process {busy}; stop it first")
    if stage is None:
        return [Target(folder, folder, None, *split_owned(folder)) for folder in folders]
    if stage not in names(GRAPH):
        raise CleanError(f"there is no stage {stage!r}; the stages are {', '.join(names(GRAPH))}")
    places = [
        (folder, name) for folder in folders for name in (stage, f"{stage}{PREVIOUS}") if (folder / name).is_dir()
    ]
    return [Target(folder, folder / name, (name,), *split_owned(folder, [name])) for folder, name in places]


def _agreed(listing: str, json: bool) -> bool:
    if json or not sys.stdin.isatty():
        raise CleanError("no terminal to ask on: give --yes to remove, or --dry-run to see what would be removed")
    return typer.confirm(f"remove\n{listing}\n?", err=True)
