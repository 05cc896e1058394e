"""One batch of files read, judged, analysed and written as a segment: what each worker process does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from etude.agent.code_index.admission import LARGEST_BYTES, admit
from etude.agent.code_index.analysis import analyse
from etude.agent.code_index.building import IndexSegmentBuilder
from etude.agent.code_index.columns import write_columns
from etude.agent.code_index.ignore import read_regular
from etude.agent.code_index.walk import Stamp

Status = Literal["indexed", "same", "skipped", "gone"]
CRASHED = "crashes the parser"


class FileToIndex(NamedTuple):
    """A file to read. `digest`: that of the text already indexed, b"" if none is."""

    path: str
    stamp: Stamp
    digest: bytes


class FileOutcome(NamedTuple):
    """What became of it; `reason` if it was skipped."""

    wanted: FileToIndex
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class FileBatch:
    """Files in the order of their paths, and where their segment goes."""

    root: Path
    segment: Path
    files: Sequence[FileToIndex]


@dataclass(frozen=True)
class BatchDone:
    """`wrote`: there was something to index, and its segment is on the disk."""

    batch: FileBatch
    wrote: bool = False
    outcomes: list[FileOutcome] = field(default_factory=list)


def read_batch(batch: FileBatch) -> BatchDone:
    """Raises OSError only where the segment can't be written."""
    builder, outcomes = IndexSegmentBuilder(), []
    for wanted in batch.files:
        outcomes.append(_read(batch.root, wanted, builder))
    if builder.files:
        write_columns(batch.segment, builder.columns())
    return BatchDone(batch, bool(builder.files), outcomes)


def digest_of(raw: bytes) -> bytes:
    """16 bytes: two different texts share it with probability 2^-128."""
    return hashlib.blake2b(raw, digest_size=16).digest()


def _read(root: Path, wanted: FileToIndex, builder: IndexSegmentBuilder) -> FileOutcome:
    try:
        raw = read_regular(root / wanted.path, LARGEST_BYTES + 1)  # one byte more than is admitted
    except FileNotFoundError:
        return FileOutcome(wanted, "gone")
    except OSError:
        return FileOutcome(wanted, "skipped", "unreadable")
    digest = digest_of(raw)
    if digest == wanted.digest:
        return FileOutcome(wanted, "same")
    text, reason = admit(wanted.path, raw)
    if reason is not None:
        return FileOutcome(wanted, "skipped", reason)
    builder.add(analyse(wanted.path, text, digest))
    return FileOutcome(wanted, "indexed")
