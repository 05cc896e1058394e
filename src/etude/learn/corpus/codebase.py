"""The files that perplexity is measured on: a folder's as they are, or a library's held-out projects; in alphabetical order of their paths."""

from __future__ import annotations

from pathlib import Path

from etude.learn.corpus.build import COPIES
from etude.learn.corpus.texts import texts


class NoCode(Exception):
    """There is no file to measure on; the message says where was looked and what to do."""


def codebase(folder: Path) -> list[tuple[str, str]]:
    """(path, text) of every file. Raises NoCode, or FileNotFoundError for a folder that isn't there."""
    found = sorted(texts(folder, "heldout"))
    if not found:
        library = (folder / COPIES).is_file()
        hint = (
            "its held-out projects have none: build it with a larger corpus.library.heldout_share, or name a folder"
            if library
            else "name a folder of sources, or a finished library"
        )
        raise NoCode(f"{folder} holds no text worth measuring on: {hint}")
    return found
