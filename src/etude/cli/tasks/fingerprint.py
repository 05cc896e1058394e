"""`etude tasks fingerprint --out DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json


def fingerprint(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go, one a suite.")],
    json: Json = False,
) -> Answer:
    """Publish what the bench's tasks are known by, so that corpora can refuse documents that hold them; no text can be read back."""
    from dataclasses import asdict

    from etude.factory.exercises import published as exercises
    from etude.tasks.real import published as real

    found = [publish(out) for publish in (exercises.publish, real.publish)]
    lines = [f"{path}: {written.texts} texts, {written.grams:,} fingerprints" for path, written in found]
    return Answer({"files": [{"file": str(path), **asdict(w)} for path, w in found]}, "\n".join(lines))
