"""The files of a commit as a task can hold them: one fresh tree, no history, nothing that `export-ignore` would leave out.

Read from git's objects, not by `git archive`: attributes of a release (`export-ignore`, `export-subst`) often leave out or
change the very tests a task needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from etude.agent.git_links.git import GitError, git
from etude.tasks.content import MODES, Mode, file_text
from etude.tasks.leftovers import leftovers

MAX_FILE_BYTES = 1 << 20
MAX_TREE_BYTES = 64 << 20


class TreeTooLarge(Exception):
    """A tree that no sandbox should be filled with."""


@dataclass(frozen=True)
class RepositoryTree:
    """Files by path, with modes, binary data and links (`tasks.content`). `left_out`: what a task can't hold (submodules, files over 1 MiB,
    names that are no UTF-8) or must not show (caches, builds, histories; `tasks.leftovers`)."""

    files: dict[str, str]
    left_out: tuple[str, ...]


def tree(repository: Path, commit: str) -> RepositoryTree:
    """Raises GitError, also for a clone that lacks a file, and TooLarge."""
    wanted: dict[str, tuple[str, Mode]] = {}
    left_out: list[str] = []
    total = 0
    listed = list(_listed(git(repository, "ls-tree", "-r", "-z", "-l", "--full-tree", commit)))
    hidden = leftovers(path for _, _, _, path in listed)
    for mode, blob, size, path in listed:
        shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        if mode not in MODES or size > MAX_FILE_BYTES or path in hidden or shown != path:
            left_out.append(shown)
            continue
        wanted[path] = blob, mode
        total += size
    if total > MAX_TREE_BYTES:
        raise TreeTooLarge(f"{commit[:12]} has {total >> 20} MiB of files, a task holds {MAX_TREE_BYTES >> 20} at most")
    blob_ids = "".join(f"{blob}\n" for blob, _ in wanted.values()).encode()
    contents = _blobs(git(repository, "cat-file", "--batch", data=blob_ids))
    files: dict[str, str] = {}
    for (path, (blob, mode)), data in zip(wanted.items(), contents, strict=True):
        if data is None:
            raise GitError(
                f"{repository} lacks {path} of {commit[:12]} (blob {blob[:12]}): it is a partial clone; fetch the rest with "
                f"`git -C {repository} fetch --refetch --no-filter`, or clone it again in whole"
            )
        files[path] = file_text(data, mode)
    return RepositoryTree(files, tuple(sorted(left_out)))


def _listed(listing: bytes) -> Iterator[tuple[str, str, int, str]]:
    """`<mode> <type> <id> <size>\\t<path>` for each entry; a submodule's size is `-`."""
    for row in filter(None, listing.decode("utf-8", "surrogateescape").split("\0")):
        header, _, path = row.partition("\t")
        mode, _, blob, size = header.split()
        yield mode, blob, int(size) if size.isascii() and size.isdigit() else 0, path  # BAD of a blob that is missing


def _blobs(data: bytes) -> Iterator[bytes | None]:
    """The contents in the order asked: a line `<id> <type> <size>`, the bytes, a newline, for each; None for `<id> missing`."""
    at = 0
    while at < len(data):
        stop = data.index(b"\n", at)
        words = data[at:stop].split()
        if len(words) != 3:
            yield None
            at = stop + 1
            continue
        size = int(words[2])
        yield data[stop + 1 : stop + 1 + size]
        at = stop + 1 + size + 1
