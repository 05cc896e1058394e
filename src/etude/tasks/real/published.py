"""The bugs in real packages as text that must not be trained on: their mended lines, what is said about them, and the packages by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from etude.core.fingerprint.publish import PublishSummary, write_fingerprints
from etude.tasks.real.catalogue import bugs

SUITE = "real-bugs"


def published_texts() -> Iterator[str]:
    """Of every bug the lines that are right, and its statement."""
    for bug in bugs().values():
        yield from (edit.old for edit in bug.edits)
        yield bug.instruction


def publish(folder: Path) -> tuple[Path, PublishSummary]:
    """Writes the suite's fingerprint file into `folder`. The packages are denied as a whole: most mended lines are too few to be found."""
    path = folder / f"{SUITE}.fp"
    return path, write_fingerprints(path, SUITE, published_texts(), {bug.package.pin.name for bug in bugs().values()})
