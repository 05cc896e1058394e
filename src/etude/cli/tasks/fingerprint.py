"""`etude tasks fingerprint [DIR] --out DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.core.fingerprint.publish import PublishSummary


def fingerprint(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Output folder, with one file per suite.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A folder of tasks. Default: the suites that come along.")
    ] = None,
    split: Annotated[
        Literal["train", "validation", "heldout"] | None,
        typer.Option("--split", help="Split of a folder's tasks to fingerprint. Default: validation and heldout."),
    ] = None,
    json: Json = False,
) -> Answer:
    """Write fingerprints of tasks, so that a corpus build can refuse documents that contain them. No text can be read back from a fingerprint."""
    from dataclasses import asdict

    found = _own(out) if folder is None else [_of_folder(folder, out, (split,) if split else ())]
    lines = [f"{path}: {written.texts} texts, {written.grams:,} fingerprints" for path, written in found]
    return Answer({"files": [{"file": str(path), **asdict(w)} for path, w in found]}, "\n".join(lines))


def _own(out: Path) -> list[tuple[Path, PublishSummary]]:
    from etude.tasks.generate.exercises import published as exercises
    from etude.tasks.real import published as real

    return [publish(out) for publish in (exercises.publish, real.publish)]


def _of_folder(
    folder: Path, out: Path, splits: tuple[Literal["train", "validation", "heldout"], ...]
) -> tuple[Path, PublishSummary]:
    from etude.tasks.store.opened import open_tasks
    from etude.tasks.store.published import SPLITS, publish

    return publish(open_tasks(folder), out, splits or SPLITS)
