"""The texts of a folder as they come: a library's, or of any folder the files that a library would take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from etude.core.sources.folder import walk
from etude.learn.corpus.build import COPIES
from etude.learn.corpus.export import ExportShape, Split, export
from etude.learn.corpus.judge import AcceptedFile, judge, judge_name


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
