"""The files of a commit as a task can hold them: one fresh tree, no history, nothing that `export-ignore` would leave out.

Read from git's objects, not by `git archive`: attributes of a release (`export-ignore`, `export-subst`) often leave out or
change the very tests a task needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from etude.link.git import git
from etude.tasks.leftovers import leftovers

MAX_FILE_BYTES = 1 << 20
MAX_TREE_BYTES = 64 << 20
PLAIN = ("100644", "100755")


class TooLarge(Exception):
    """A tree that no sandbox should be filled with."""


@dataclass(frozen=True)
class Tree:
    """UTF-8 files by path. `left_out`: what a task can't hold (links, submodules, binaries, files over 1 MiB, names that are no UTF-8) or must not
    show (caches, builds, histories; `tasks.leftovers`)."""

    files: dict[str, str]
    left_out: tuple[str, ...]


def tree(repository: Path, commit: str) -> Tree:
    """Raises GitError, TooLarge."""
    wanted: dict[str, str] = {}
    left_out: list[str] = []
    total = 0
    listed = list(_listed(git(repository, "ls-tree", "-r", "-z", "-l", "--full-tree", commit)))
    hidden = leftovers(path for _, _, _, path in listed)
    for mode, blob, size, path in listed:
        told = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        if mode not in PLAIN or size > MAX_FILE_BYTES or path in hidden or told != path:
            left_out.append(told)
            continue
        wanted[path] = blob
        total += size
    if total > MAX_TREE_BYTES:
        raise TooLarge(f"{commit[:12]} has {total >> 20} MiB of files, a task holds {MAX_TREE_BYTES >> 20} at most")
    asked = "".join(f"{blob}\n" for blob in wanted.values()).encode()
    files: dict[str, str] = {}
    for path, data in zip(wanted, _blobs(git(repository, "cat-file", "--batch", data=asked)), strict=True):
        text = _text(data)
        if text is None:
            left_out.append(path)
        else:
            files[path] = text
    return Tree(files, tuple(sorted(left_out)))


def _listed(listing: bytes) -> Iterator[tuple[str, str, int, str]]:
    """`<mode> <type> <id> <size>\\t<path>` for each entry; a submodule's size is `-`."""
    for row in filter(None, listing.decode("utf-8", "surrogateescape").split("\0")):
        told, _, path = row.partition("\t")
        mode, _, blob, size = told.split()
        yield mode, blob, int(size) if size.isdigit() else 0, path


def _blobs(data: bytes) -> Iterator[bytes]:
    """The contents in the order asked: a line `<id> <type> <size>`, the bytes, a newline, for each."""
    at = 0
    while at < len(data):
        stop = data.index(b"\n", at)
        size = int(data[at:stop].split()[2])
        yield data[stop + 1 : stop + 1 + size]
        at = stop + 1 + size + 1


def _text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode("utf-8")
    except UnicodeDecodeError:
        return None
