"""Live folders, and the walk that every project's files are read by."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etude.core.sources.project import ProjectRefused, Ref, SourceProject

# Folders of tools, made again whenever they are missing; hidden ones (.git, .tox, .venv, .mypy_cache …) are left out by their dot.
CACHES = frozenset({"__pycache__", "__pypackages__", "node_modules", "bower_components", "jspm_packages"})
# A file that says the same of the folder it is in: the Cache Directory Tagging Specification, and PEP 405 for environments.
CACHE_MARKS = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})


class FolderSource:
    """A folder as it is now is one project."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def refs(self) -> Iterator[Ref]:
        """One. Raises NotADirectoryError: a local folder that isn't there is a mistake in the recipe, not a network that is down."""
        if not self.path.is_dir():
            raise NotADirectoryError(
                f"source {self.name!r} names {self.path}, which is not a folder; correct or remove it"
            )
        path = self.path.resolve()
        yield Ref(self.name, "folder", path.name or self.name, "", "", str(path))

    @contextmanager
    def open(self, ref: Ref) -> Iterator[SourceProject]:
        """The folder itself, nothing copied."""
        root = Path(ref.location)
        if not root.is_dir():
            raise ProjectRefused(f"the folder {root} is gone")
        yield SourceProject(ref, root, "")


def walk(root: Path, skipped: Counter[str] | None = None) -> Iterator[Path]:
    """All regular files below `root` in the order of their paths, part by part, the same on every machine.

    Links, special files, hidden folders, caches and names that no text can be filed under are left out and, with `skipped`, counted.
    Memory: the names of the folders on the way down."""
    counts: Counter[str] = Counter() if skipped is None else skipped
    pending = [iter(_entries(root, counts))]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif not entry.name.isprintable():
            counts["unprintable name"] += 1
        elif entry.is_symlink():
            counts["link"] += 1
        elif entry.is_dir(follow_symlinks=False):
            if entry.name.startswith("."):
                counts["hidden folder"] += 1
            elif entry.name in CACHES or any(os.path.lexists(os.path.join(entry.path, mark)) for mark in CACHE_MARKS):
                counts["cache folder"] += 1
            else:
                pending.append(iter(_entries(entry.path, counts)))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)
        else:
            counts["special file"] += 1


def _entries(folder: str | Path, counts: Counter[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        counts["unreadable folder"] += 1
        return []
