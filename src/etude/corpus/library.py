"""The library: every text that was kept, project by project, as compressed JSON lines; what all later passes read.

    records/<source>/<name>@<version>.jsonl.zst     one file a project, written whole or not at all

Reading streams: one project is in memory at a time, however large the library is. Order is the manifest's, so a pass over the
library sees the same records under the same numbers in every run (promise 11).
"""

from __future__ import annotations

import io
import json
import os
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zstandard

from etude.corpus.record import Licence, Record

LEVEL = (
    3  # of zstd: 250 MB/s on one core and a quarter of the size; higher levels cost more time than disk is worth here
)


class LibraryDamaged(Exception):
    """A file of the library can't be read; the message names it and the remedy."""


class Library:
    """A folder of records by project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "records").mkdir(parents=True, exist_ok=True)

    def path(self, project: str) -> Path:
        """Where the records of a project (`Ref.id`) lie. Quoting keeps a name from climbing out of the folder."""
        source, _, name = project.partition("/")
        return self.folder / "records" / _quoted(source) / f"{_quoted(name)}.jsonl.zst"

    def write(self, project: str, records: Iterable[Record]) -> int:
        """Takes the records of a project, in place of what was there; returns how many."""
        target = self.path(project)
        target.parent.mkdir(exist_ok=True)
        side = target.with_suffix(".part")
        count = 0
        with open(side, "wb") as file, zstandard.ZstdCompressor(LEVEL).stream_writer(file, closefd=False) as packed:
            for record in records:
                packed.write(json.dumps(asdict(record)).encode() + b"\n")
                count += 1
        side.replace(target)
        return count

    def read(self, project: str) -> Iterator[Record]:
        """Raises LibraryDamaged."""
        path = self.path(project)
        try:
            with open(path, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as packed:
                for line in io.TextIOWrapper(packed, "utf-8", newline="\n"):
                    yield _record(json.loads(line))
        except (OSError, ValueError, zstandard.ZstdError) as error:
            raise LibraryDamaged(
                f"{path} can't be read ({error}): remove its line from the manifest's end on, or build into an empty folder"
            ) from error

    def discard(self, project: str) -> None:
        """Forgets a project that is in no manifest (killed between its records and its line)."""
        self.path(project).unlink(missing_ok=True)


def _record(values: dict[str, Any]) -> Record:
    return Record(**values | {"licence": Licence(**values["licence"])})


def _quoted(name: str) -> str:
    """A file name for any string; `os.fsencode` length stays below 255 for names up to 80 characters."""
    quoted = urllib.parse.quote(name, safe="@+=,")
    return quoted.replace(".", "%2E") if quoted.strip(".") == "" else quoted[: 255 - len(os.fsencode(".jsonl.zst"))]
