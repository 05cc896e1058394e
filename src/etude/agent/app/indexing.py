"""The code index of a person's folder: where it is worth making, and what the person sees of its making.

It lies in the user's cache, where `etude index` has it too; the first search brings it up to date.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from etude.agent.git_links.git import GitError, repository

if TYPE_CHECKING:
    from etude.agent.harness.code_index import FolderIndex

# Of a folder that is no repository: nothing says there what is source and what is not, so a home or a data folder is left alone. A folder
# of this many files is indexed in half a minute.
MAX_LOOSE_FILES = 5_000
# Fewer are read in about a second: not worth a word.
TOLD_FILES = 300
TOLD_EVERY_S = 5.0


class IndexUnwanted(Exception):
    """Why a folder gets no index, for the person."""


def folder_index(folder: Path, tell: Callable[[str], None]) -> FolderIndex:
    """Nothing is read yet. `tell` hears, on the event loop that calls this, how far the first search is. Raises IndexUnwanted."""
    from etude.agent.code_index.index import Index
    from etude.agent.code_index.store import default_folder
    from etude.agent.harness.code_index import FolderIndex

    try:
        repository(folder)
    except GitError:
        if _more_files_than(folder, MAX_LOOSE_FILES):
            raise IndexUnwanted(
                f"{folder} is no git repository and holds more than {MAX_LOOSE_FILES:,} files; work in a folder of it, or git init"
            ) from None
    store = default_folder(folder.resolve())
    there = next(place for place in (store, *store.parents) if place.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise IndexUnwanted(f"the cache {store} can't be written by this user; set XDG_CACHE_HOME to a folder that can")
    loop = asyncio.get_running_loop()
    index = Index(folder, notice=lambda line: _post(loop, tell, f"code search: {line}"))
    return FolderIndex(index, Progress(lambda line: _post(loop, tell, line)))


def forget_index(folder: Path) -> None:
    """Take away the index of a folder that goes."""
    from etude.agent.code_index.store import default_folder

    store = default_folder(folder.resolve())
    if store.is_dir():
        shutil.rmtree(store)


class Progress:
    """How far an update is, in lines: at its beginning if it is a long one, then now and then."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._told_s = tell, 0.0

    def __call__(self, done: int, total: int) -> None:
        if total < TOLD_FILES:
            return
        now_s = time.monotonic()
        if done == 0:
            self._told_s = now_s
            self._tell(f"indexing {total:,} files…")
        elif now_s - self._told_s >= TOLD_EVERY_S:
            self._told_s = now_s
            self._tell(f"indexed {done:,} of {total:,} files")


def _post(loop: asyncio.AbstractEventLoop, tell: Callable[[str], None], line: str) -> None:
    """From the thread that indexes. A session that is over is told nothing."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, line)


def _more_files_than(folder: Path, limit: int) -> bool:
    """Looks at no more than it must."""
    count = 0
    for _, _, files in os.walk(folder):
        count += len(files)
        if count > limit:
            return True
    return False
