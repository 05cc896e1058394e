"""The code index of the user's folder: which folders get one, and how its progress is reported.

The index lies in the user's cache, where `etude index` keeps it too. The first search updates it.
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

# Limit for a folder that is no repository. Without ignore rules a home or data folder can't be distinguished from source code, so large ones
# are not indexed. A folder of this many files takes half a minute.
MAX_LOOSE_FILES = 5_000
# Fewer files are read in about a second, which needs no progress report.
MIN_REPORTED_FILES = 300
REPORT_EVERY_S = 5.0


class IndexUnavailable(Exception):
    """Why a folder gets no index, as a message for the user."""


def folder_index(folder: Path, on_notice: Callable[[str], None]) -> FolderIndex:
    """Nothing is read yet. `tell` hears, on the event loop that calls this, how far the first search is. Raises IndexUnavailable."""
    from etude.agent.code_index.index import Index
    from etude.agent.code_index.store import default_folder
    from etude.agent.harness.code_index import FolderIndex

    try:
        repository(folder)
    except GitError:
        if _more_files_than(folder, MAX_LOOSE_FILES):
            raise IndexUnavailable(
                f"{folder} is no git repository and holds more than {MAX_LOOSE_FILES:,} files; work in a folder of it, or git init"
            ) from None
    store = default_folder(folder.resolve())
    there = next(place for place in (store, *store.parents) if place.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise IndexUnavailable(
            f"the cache {store} can't be written by this user; set XDG_CACHE_HOME to a folder that can"
        )
    loop = asyncio.get_running_loop()
    index = Index(folder, notice=lambda line: _post(loop, on_notice, f"code search: {line}"))
    return FolderIndex(index, IndexProgress(lambda line: _post(loop, on_notice, line)))


def delete_index(folder: Path) -> None:
    """Delete the index of a folder that is removed."""
    from etude.agent.code_index.store import default_folder

    store = default_folder(folder.resolve())
    if store.is_dir():
        shutil.rmtree(store)


class IndexProgress:
    """Reports the progress of a long update: one line at its start, then one every few seconds."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._reported_s = tell, 0.0

    def __call__(self, done: int, total: int) -> None:
        if total < MIN_REPORTED_FILES:
            return
        now_s = time.monotonic()
        if done == 0:
            self._reported_s = now_s
            self._tell(f"indexing {total:,} files…")
        elif now_s - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = now_s
            self._tell(f"indexed {done:,} of {total:,} files")


def _post(loop: asyncio.AbstractEventLoop, tell: Callable[[str], None], line: str) -> None:
    """Pass a line from the indexing thread to the event loop. A closed loop gets nothing."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, line)


def _more_files_than(folder: Path, limit: int) -> bool:
    """Whether the folder holds more than `limit` files. Stops counting at the limit."""
    count = 0
    for _, _, files in os.walk(folder):
        count += len(files)
        if count > limit:
            return True
    return False
