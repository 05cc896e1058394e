"""The library: every text that was kept, project by project, as compressed JSON lines; what all later passes read.

    records/<source>/<name>@<version>.jsonl.zst     one file a project, written whole or not at all; its last line is the number of texts

Reading streams: one project is in memory at a time, however large the library is. Order is the manifest's, so a pass over the
library sees the same records under the same numbers in every run (promise 11).
"""

from __future__ import annotations

import hashlib
import io
import json
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zstandard

from etude.core.files import replacing
from etude.core.licence.licence import Licence
from etude.learn.corpus.record import TextRecord

LEVEL = (
    3  # of zstd: 250 MB/s on one core and a quarter of the size; higher levels cost more time than disk is worth here
)

MOST_LINE_CHARS = 256 << 20  # of one record: far above any text that a corpus keeps
LONGEST_NAME = 255 - len(".jsonl.zst")  # what file systems take, in bytes


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

    def write(self, project: str, records: Iterable[TextRecord]) -> int:
        """Takes the records of a project, in place of what was there; returns how many."""
        target = self.path(project)
        target.parent.mkdir(exist_ok=True)
        count = 0
        with replacing(target) as file, zstandard.ZstdCompressor(LEVEL).stream_writer(file, closefd=False) as packed:
            for record in records:
                packed.write(json.dumps(asdict(record)).encode() + b"\n")
                count += 1
            packed.write(b"%d\n" % count)
        return count

    def read(self, project: str) -> Iterator[TextRecord]:
        """Raises LibraryDamaged, where a file has no end too: zstd itself takes that for a short one."""
        path = self.path(project)
        try:
            with open(path, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as packed:
                value: Any = None
                text = io.TextIOWrapper(packed, "utf-8", newline="\n")
                while line := text.readline(MOST_LINE_CHARS):
                    if len(line) == MOST_LINE_CHARS:
                        raise ValueError(f"a line of more than {MOST_LINE_CHARS:,} characters")
                    if isinstance(value := json.loads(line), dict):
                        yield _record(value)
            if not isinstance(value, int):
                raise ValueError("its end is missing")
        except (OSError, ValueError, zstandard.ZstdError, RecursionError) as error:
            raise LibraryDamaged(
                f"{path} can't be read ({error}): restore it from a copy, or build into another folder"
            ) from error


def _record(values: dict[str, Any]) -> TextRecord:
    values["licence"] = Licence(**values["licence"])
    return TextRecord(**values)


def _quoted(name: str) -> str:
    """A file name for any string: no separator, no "." or "..", and where it is too long for one its digest at the end."""
    quoted = urllib.parse.quote(name, safe="@+=,")
    if len(quoted) > LONGEST_NAME:
        quoted = f"{quoted[: LONGEST_NAME - 17]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")
