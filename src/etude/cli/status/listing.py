"""`etude runs`: the run directories below a folder, newest first."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.status.read import kind_of, read_run
from etude.cli.status.run_state import RunStatus

DEFAULT = Path("runs")
DEEPEST = 4  # runs/ablations/NAME/seed-0/VALUE


class NoRuns(Exception):
    """The folder is absent, or holds no run."""


def runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder that holds the runs.")] = DEFAULT,
    json: Json = False,
) -> Answer:
    """List the runs below a folder with kind, state, stages, last activity and size, newest first. Nothing is changed."""
    if not folder.is_dir():
        raise NoRuns(f"{folder} is no folder; name the folder that holds the runs, or start one with `etude run`")
    found = read_runs(folder)
    text = table(found) if found else f"no run in {folder}; `etude run` starts one"
    return Answer({"runs": [state.row() for state in found]}, text)


def read_runs(folder: Path) -> list[RunStatus]:
    """The state of every run below a folder, newest first."""
    found = [read_run(path, os.path.relpath(path, folder)) for path in run_folders(folder)]
    return sorted(found, key=lambda state: (-state.active_s, state.name))


def run_folders(folder: Path, depth: int = DEEPEST) -> Iterator[Path]:
    """Run directories below a folder. A run's own folders are not searched, except the cells of an ablation. Links are not followed."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
            continue
        kind = kind_of(path)
        if kind:
            yield path
        if depth > 1 and kind in ("", "ablation"):
            yield from run_folders(path, depth - 1)


def table(found: list[RunStatus]) -> str:
    """One line for each run, and one for each fault."""
    head = ("name", "kind", "state", "done", "active", "size")
    rows = [
        (state.name, state.kind, state.words, progress(state), f"{ago(state.active_s)} ago", size(state.bytes))
        for state in found
    ]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]
    ]
    return "\n".join([*lines, *(f"{state.name}: {state.fault}" for state in found if state.fault)])


def progress(state: RunStatus) -> str:
    """`5/9`; a dash where the directory doesn't say."""
    if state.done is None:
        return "-"
    return f"{state.done}/{state.total}" if state.total is not None else str(state.done)


def ago(time_s: float) -> str:
    from etude.core.events.picture import duration

    passed = max(0.0, time.time() - time_s)
    return f"{passed / 86400:.0f} days" if passed >= 2 * 86400 else duration(passed)


def size(count: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
