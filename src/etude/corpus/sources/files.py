"""Where files come from: the standard library of the machine and the folders a person names."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from etude.corpus.settings import CorpusSettings

# Not code a programmer reads to learn: tests repeat themselves, idlelib and turtledemo are applications,
# lib2to3 grammar dumps and encodings tables are data, site-packages is not the standard library.
STDLIB_SKIPPED = frozenset(
    {"test", "tests", "idlelib", "idle_test", "turtledemo", "encodings", "lib2to3", "site-packages", "dist-packages"}
)
# Folders that hold caches and history, not sources.
HIDDEN_FOLDERS = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True)
class SourceFile:
    """A candidate file: nothing read yet. `python` asks the cleaning to parse it."""

    path: Path
    source: str
    name: str

    @property
    def python(self) -> bool:
        return self.path.suffix == ".py"


def source_files(settings: CorpusSettings) -> Iterator[SourceFile]:
    """All candidates in a fixed order; raises FileNotFoundError for a folder that does not exist."""
    if settings.stdlib:
        root = Path(sysconfig.get_paths()["stdlib"])
        yield from _walk(root, "stdlib", skipped=STDLIB_SKIPPED, suffix=".py")
    for folder in settings.folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"corpus.folders names {folder}, which is not a folder; correct or remove it")
        yield from _walk(folder, f"folder:{folder.name}", skipped=frozenset(), suffix="")


def _walk(root: Path, source: str, *, skipped: frozenset[str], suffix: str) -> Iterator[SourceFile]:
    for place, folders, names in os.walk(root):
        folders[:] = sorted(
            f for f in folders if f not in skipped and f not in HIDDEN_FOLDERS and not f.startswith(".")
        )
        for name in sorted(names):
            path = Path(place) / name
            if name.endswith(suffix) and path.is_file() and not path.is_symlink():
                yield SourceFile(path, source, path.relative_to(root).as_posix())
