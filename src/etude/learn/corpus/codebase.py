"""The files that perplexity is measured on: a folder's as they are, or a library's held-out projects; in alphabetical order of their paths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from etude.core.sources.folder import walk
from etude.learn.corpus.build import COPIES
from etude.learn.corpus.export import ExportShape, Split, export
from etude.learn.corpus.judge import AcceptedFile, judge, judge_name

# The texts of a folder as they come: a library's, or of any folder the files that a library would take.


def texts(folder: Path, split: Split) -> Iterator[tuple[str, str]]:
    """(path, text), streamed. `split` is of a library's projects; a plain folder has none and gives all. Raises FileNotFoundError."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    if (folder / COPIES).is_file():
        yield from ((f"{d['project']}/{d['path']}", d["text"]) for d in export(folder, "files", split, ExportShape()))
        return
    for file in walk(folder):
        path = file.relative_to(folder).as_posix()
        if judge_name(path, file.stat().st_size):
            continue
        if isinstance(kept := judge(path, file.read_bytes()), AcceptedFile):
            yield path, kept.text


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
