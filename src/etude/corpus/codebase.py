"""The files that perplexity is measured on: a folder's as they are, or a library's held-out projects; in alphabetical order of their paths."""

from __future__ import annotations

from pathlib import Path

from etude.corpus.build import COPIES
from etude.corpus.export import Shape, export
from etude.corpus.judge import Kept, judge, judge_name
from etude.corpus.sources.folder import walk


class NoCode(Exception):
    """There is no file to measure on; the message says where was looked and what to do."""


def codebase(folder: Path) -> list[tuple[str, str]]:
    """(path, text) of every file. Raises NoCode, or FileNotFoundError for a folder that isn't there."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    if (folder / COPIES).is_file():
        documents = export(folder, "files", "heldout", Shape())
        found = [(f"{d['project']}/{d['path']}", d["text"]) for d in documents]
        hint = "its held-out projects have none: build it with a larger corpus.library.heldout_share, or name a folder"
    else:
        found = [(path, text) for path, text in (_read(folder, file) for file in walk(folder)) if text]
        hint = "name a folder of sources, or a finished library"
    if not found:
        raise NoCode(f"{folder} holds no text worth measuring on: {hint}")
    return sorted(found)


def _read(folder: Path, file: Path) -> tuple[str, str]:
    """The path inside the folder, and the text; "" for a file that a library would refuse."""
    path = file.relative_to(folder).as_posix()
    if judge_name(path, file.stat().st_size):
        return path, ""
    kept = judge(path, file.read_bytes())
    return path, kept.text if isinstance(kept, Kept) else ""
