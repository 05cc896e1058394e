"""The files of a folder that may be indexed, and those that are not with the reason, from their names and sizes alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from etude.agent.code_index.admission import refused_by_name
from etude.agent.code_index.errors import IndexRefused
from etude.agent.code_index.ignore import Ignores, read, repository_rules

# Never entered, whatever .gitignore says: histories, caches and installed packages are not source code here.
NEVER = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".jj",
        "__pycache__",
        "node_modules",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
    }
)
# A folder that has one of these is a cache or a virtual environment.
CACHE_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")


class Stamp(NamedTuple):
    """What tells cheaply that a file may have changed."""

    mtime_ns: int
    size: int


@dataclass
class Walk:
    """`files`: path -> stamp; `skipped`: path -> reason (a folder's path ends with `/`)."""

    files: dict[str, Stamp] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def require_folder(root: Path) -> None:
    """Raises IndexRefused where root is no folder or can't be read."""
    if not root.is_dir():
        raise IndexRefused(f"{root} is {'a file' if root.exists() else 'missing'}; name a folder to index")
    try:
        os.listdir(root)
    except OSError as error:
        raise IndexRefused(
            f"{root} can't be read ({error.strerror}); give yourself the right or name another"
        ) from error


def walk(root: Path) -> Walk:
    """Everything below `root`; links are not followed. Raises IndexRefused where root is no folder or can't be read."""
    require_folder(root)
    prefix, outer = repository_rules(root.resolve())
    found = Walk()
    pending: list[tuple[str, Ignores]] = [("", outer)]
    while pending:
        base, above = pending.pop()
        entries = _entries(root, base, found)
        ignores = above
        if any(entry.name == ".gitignore" for entry in entries):
            ignores = above.within(prefix + base, read(root / base / ".gitignore"))
        for entry in entries:
            _sort(entry, base, prefix, ignores, found, pending)
    return found


def _entries(root: Path, base: str, found: Walk) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root / base) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        found.skipped[base] = "unreadable folder"
        return []


def _sort(
    entry: os.DirEntry[str], base: str, prefix: str, ignores: Ignores, found: Walk, pending: list[tuple[str, Ignores]]
) -> None:
    """Puts an entry where it belongs: the files, the skipped, or the folders still to be walked."""
    path = base + entry.name
    try:
        folder = entry.is_dir(follow_symlinks=False)
        if not path.isprintable():
            found.skipped[repr(path)] = "unprintable name"
        elif entry.is_symlink():
            found.skipped[path] = "link"
        elif entry.name in NEVER or (folder and any(os.path.lexists(f"{entry.path}/{mark}") for mark in CACHE_MARKS)):
            found.skipped[path + "/" * folder] = "cache or history"
        elif ignores.is_ignored(prefix + path, folder=folder):
            found.skipped[path + "/" * folder] = "ignored"
        elif folder:
            pending.append((path + "/", ignores))
        elif not entry.is_file(follow_symlinks=False):
            found.skipped[path] = "special file"
        else:
            status = entry.stat(follow_symlinks=False)
            reason = refused_by_name(path, status.st_size)
            if reason is None:
                found.files[path] = Stamp(status.st_mtime_ns, status.st_size)
            else:
                found.skipped[path] = reason
    except FileNotFoundError:  # it went while we looked: as if it had never been
        return
    except OSError:
        found.skipped[path] = "unreadable"
